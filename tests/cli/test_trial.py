"""What no interpreter takes is refused alike, whether the compiler tried its file or the proof ran it first.

XNNPACK takes tensors of up to 6 axes and refuses the whole file of a Softmax over 7.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.converters.params import TfliteParams
from onnxport.core.errors import CannotConvertError
from onnxport.formats.artifact import Artifact
from onnxport.formats.model import Model
from onnxport.pipelines import runner, workers
from onnxport.pipelines.registry import TARGETS
from onnxport.pipelines.runner.jobs import Job, Step
from onnxport.pipelines.stages import Product, Work, Worker
from onnxport.validate.params import ValidateParams
from tests.cli.sandbox import DIGITS, Sandbox
from tests.cli.test_routes import _GIVES, ONNX2TF, made_by_others, stand_in

AXES = [2] * 7
TRIED: list[bool] = []


def softmax(path: Path, *, is_plain: bool = False) -> Path:
    """Write a Softmax over 7 axes; `is_plain` over two of them, which computes the same."""
    nodes = [helper.make_node("Softmax", ["x"], ["y"], "wide")]
    sizes: list[onnx.TensorProto] = []
    if is_plain:
        nodes = [
            helper.make_node("Reshape", ["x", "flat"], ["a"]),
            helper.make_node("Softmax", ["a"], ["b"]),
            helper.make_node("Reshape", ["b", "all"], ["y"]),
        ]
        sizes = [
            numpy_helper.from_array(np.array([64, 2]), "flat"),
            numpy_helper.from_array(np.array(AXES), "all"),
        ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, AXES) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], sizes)
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)]), path)
    return path


def refusal(sandbox: Sandbox, *options: str) -> str:
    outcome = sandbox.run("convert", "wide.onnx", "--to", "tflite", *options)
    assert outcome.code == 3, outcome.stderr
    assert not list(sandbox.folder.glob("*.tflite"))
    assert not list(sandbox.temporary.iterdir())
    return outcome.stderr[outcome.stderr.index("error:") :]


def test_a_refusal_reads_the_same_with_and_without_a_proof(sandbox: Sandbox) -> None:
    softmax(sandbox.folder / "wide.onnx")
    proven = refusal(sandbox)
    assert "the LiteRT interpreter refuses the converted model" in proven
    assert "SOFTMAX node #0" in proven
    assert "onnx2tf may convert it" in proven
    assert proven == refusal(sandbox, "--no-validate")


def test_a_proof_on_other_kernels_excuses_no_file_that_xnnpack_refuses(sandbox: Sandbox) -> None:
    softmax(sandbox.folder / "wide.onnx")
    assert "SOFTMAX node #0" in refusal(sandbox, "--candidate-runtime", "delegate=none")


def test_what_the_interpreter_refuses_goes_the_second_route(sandbox: Sandbox) -> None:
    softmax(sandbox.folder / "wide.onnx")
    softmax(sandbox.folder / "plain.onnx", is_plain=True)
    stand_in(sandbox, _GIVES, made_by_others(sandbox, Path("plain.onnx")))
    outcome = sandbox.run("convert", "wide.onnx", "--to", "tflite", *ONNX2TF, "--json")
    assert outcome.code == 0, outcome.stderr
    (artifact,) = outcome.document["artifacts"]
    assert artifact["report"]["verdict"] == "proven"
    assert "SOFTMAX node #0" in artifact["notes"][0]


@contextmanager
def watched() -> Iterator[Worker]:
    """Convert, and note whether the artefact is to be tried."""
    with workers.tflite() as convert:

        def make(model: Model, params: TfliteParams, work: Work) -> Product:
            TRIED.append(work.tries)
            return convert(model, params, work)

        yield make


def run(source: Path, validation: ValidateParams | None) -> None:
    stage = replace(TARGETS["tflite"], worker=f"{__name__}:watched")
    step = Step(stage, TfliteParams(route="direct"))
    job = Job(Artifact.open(source), (step,), source.with_suffix(".tflite"), validation=validation)
    runner.run(job, "test")


@pytest.mark.parametrize(
    ("validation", "tried"),
    [
        (ValidateParams(samples=1), [False]),
        (ValidateParams(samples=1, candidate_runtime={"threads": "1"}), [False]),
        (ValidateParams(samples=1, candidate_runtime={"delegate": "none"}), [True]),
        (None, [True]),
    ],
    ids=["proven", "on one thread", "on other kernels", "unproven"],
)
def test_a_right_file_is_tried_where_its_proof_is_no_trial(
    validation: ValidateParams | None, tried: list[bool], tmp_path: Path
) -> None:
    TRIED.clear()
    source = tmp_path / "digits.onnx"
    source.write_bytes(DIGITS.read_bytes())
    run(source, validation)
    assert tried == TRIED


def test_a_file_that_the_proof_cannot_run_is_tried(tmp_path: Path) -> None:
    TRIED.clear()
    with pytest.raises(CannotConvertError, match="interpreter refuses"):
        run(softmax(tmp_path / "wide.onnx"), ValidateParams(samples=1))
    assert TRIED == [False, True]
