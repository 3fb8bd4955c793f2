"""`onnxport diff`."""

from __future__ import annotations

import onnx
from onnx import numpy_helper

from tests.cli.sandbox import Sandbox


def test_it_names_the_change_and_what_it_does(sandbox: Sandbox) -> None:
    model = onnx.load(sandbox.model)
    weight = next(each for each in model.graph.initializer if len(each.dims) == 1)
    numbers = numpy_helper.to_array(weight).copy()
    numbers[0] += 1
    weight.CopyFrom(numpy_helper.from_array(numbers, weight.name))
    onnx.save(model, sandbox.folder / "other.onnx")
    outcome = sandbox.run("diff", "model.onnx", "other.onnx")
    assert outcome.code == 0, outcome.stderr
    assert f"weight {weight.name}, 1 of {numbers.size} elements, most at [0]" in outcome.stdout
    assert "what they compute" in outcome.stdout
    assert "is at fault" in outcome.stdout
    found = sandbox.run("diff", "model.onnx", "other.onnx", "--no-run", "--json").document
    assert found["run"] is None
    assert [change["kind"] for change in found["graph"]["changes"]] == ["changed"]


def test_one_model_twice_has_no_difference(sandbox: Sandbox) -> None:
    outcome = sandbox.run("diff", "model.onnx", "model.onnx", "--no-run")
    assert outcome.code == 0
    assert "no node, attribute or weight differs" in outcome.stdout


def test_another_format_is_refused_with_the_command_that_takes_it(sandbox: Sandbox) -> None:
    (sandbox.folder / "model.tflite").write_bytes(b"TFL3")
    outcome = sandbox.run("diff", "model.onnx", "model.tflite")
    assert outcome.code == 2
    assert "onnxport debug model.onnx model.tflite" in outcome.stderr
