"""`onnxport run`: a pipeline's artefacts are those of the single commands, and what is made once is not made again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import onnx
import pytest

import onnxport
from onnxport.cli.commands import cli
from onnxport.validate.reference import Reference

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"
PIPELINE = """
version: 1
model: digits.onnx
stages:
  lean: {use: optimize}
targets:
  phone: {to: tflite, from: lean}
  server: {to: ort}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(DIGITS, tmp_path)
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    monkeypatch.setenv("ONNXPORT_CACHE", str(tmp_path / "cache"))  # other tests make the same
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ran(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Node to its status in a run, which has to pass."""
    assert cli.main(["run", "pipeline.yaml", "--json"], standalone_mode=False) == 0
    return {node["name"]: node["status"] for node in json.loads(capsys.readouterr().out)["nodes"]}


def test_what_is_unchanged_is_not_made_again(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("digits/lean", "digits/phone", "digits/server")
    assert ran(capsys) == dict.fromkeys(names, "made")
    assert ran(capsys) == dict.fromkeys(names, "cached")
    (project / "pipeline.yaml").write_text(PIPELINE.replace("{to: ort}", "{to: ort, level: basic}"))
    assert ran(capsys) == dict.fromkeys(names, "cached") | {"digits/server": "made"}


def test_artefacts_are_those_of_the_single_command(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran(capsys)
    onnxport.convert_model("digits.onnx", to="ort")
    assert (project / "build" / "digits" / "server.ort").read_bytes() == (project / "digits.ort").read_bytes()


def test_one_reference_answers_for_all_nodes_of_a_model(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = []
    prepare = Reference.prepare

    def counted(self: Reference) -> None:
        prepared.append(self.artifact.path)
        prepare(self)

    monkeypatch.setattr(Reference, "prepare", counted)
    text = PIPELINE.replace("model: digits.onnx", "models: {a: digits.onnx, b: copy.onnx}")
    (project / "pipeline.yaml").write_text(text)
    model = onnx.load(DIGITS)
    model.producer_name = "another"  # equal files have one key
    onnx.save(model, project / "copy.onnx")
    assert set(ran(capsys).values()) == {"made"}
    assert [path.name for path in prepared] == ["digits.onnx", "copy.onnx"]
