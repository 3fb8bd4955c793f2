"""A stage that breaks one node: the run names the stage, then the node, and goes on with what does not need it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from pydantic import BaseModel

from onnxport.cli.commands import cli
from onnxport.formats.model import Model
from onnxport.pipelines.registry import STAGES
from onnxport.pipelines.stages import Product, Stage, Work, Worker

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"
PIPELINE = """
version: 1
model: digits.onnx
stages:
  lean: {use: optimize}
  bent: {use: bending, from: lean}
targets:
  phone: {to: ort, from: bent}
  server: {to: ort, from: lean}
"""


class BendParams(BaseModel):
    pass


@contextmanager
def bending() -> Iterator[Worker]:
    """Turns the sign of the second convolution's weights."""

    def make(model: Model, params: BendParams, work: Work) -> Product:
        copy = model.clone()
        _, node, *_ = (node for node in copy.graph if node.op_type == "Conv")
        weight = node.inputs[1]
        assert weight is not None
        assert weight.const_value is not None
        weight.const_value = ir.tensor(np.negative(weight.const_value.numpy()), name=weight.name)
        return Product(copy.save(work.output))

    yield make


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(DIGITS, tmp_path)
    stage = Stage("bending", BendParams, "onnx", "onnx", libraries=("onnx",), worker=f"{__name__}:bending")
    monkeypatch.setitem(STAGES, "bending", stage)  # type: ignore[arg-type]
    monkeypatch.setenv("ONNXPORT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ran(capsys: pytest.CaptureFixture[str], pipeline: str) -> dict[str, Any]:
    Path("pipeline.yaml").write_text(pipeline)
    assert cli.main(["run", "pipeline.yaml", "--json"], standalone_mode=False) == 1
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_the_stage_and_then_the_node_are_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = ran(capsys, PIPELINE)
    assert {node["name"]: node["status"] for node in report["nodes"]} == {
        "digits/lean": "made",
        "digits/bent": "failed",
        "digits/phone": "not run",
        "digits/server": "made",
    }
    (artifact,) = report["nodes"][1]["run"]["artifacts"]
    assert artifact["path"] is None
    assert artifact["report"]["verdict"] == "not equivalent"
    guilty = second_convolution(Model.load(project / "digits.onnx"))
    assert artifact["report"]["diagnosis"]["node"]["name"] == guilty
    phone, server = report["cells"]
    assert phone["verdict"] == "not run"
    assert phone["reason"].startswith("bending (digits/bent) is not equivalent: ")
    assert repr(guilty) in phone["reason"]
    assert (server["verdict"], Path(server["path"]).exists()) == ("proven", True)
    assert not list((project / "cache").rglob("*rejected*"))


def second_convolution(model: Model) -> str | None:
    _, node, *_ = (node for node in model.graph if node.op_type == "Conv")
    return node.name


def test_nobody_looks_for_the_node_where_that_is_switched_off(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = ran(capsys, f"{PIPELINE}diagnose: false\n")
    assert report["nodes"][1]["run"]["artifacts"][0]["report"]["diagnosis"] is None
