"""Squeeze without axes where sizes are open, as PyTorch exports `x.squeeze()`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxport
from onnxport.core.errors import CannotConvertError

_MODEL = """<ir_version: 9, opset_import: ["" : 17]>
g (float[N, 3, L] x) => (float[{declared}] y) <float four = {{4.0}}> {{
    weighted = Conv (x, kernel)
    largest = GlobalAveragePool (weighted)
    taken = Squeeze (largest)
    held = Sigmoid (taken)
    y = Mul (held, four)
}}"""


def saved(folder: Path, declared: str, channels: int) -> Path:
    model = onnx.parser.parse_model(_MODEL.format(declared=declared))
    kernel = np.random.default_rng(0).standard_normal((channels, 3, 1)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(kernel, "kernel"))
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


@pytest.mark.parametrize("target", ["tflite", "coreml"])
@pytest.mark.parametrize(("declared", "channels"), [("", 1), ("2", 2), ("N", 2)])
def test_a_declared_rank_says_that_the_open_axis_goes(
    tmp_path: Path, declared: str, channels: int, target: str
) -> None:
    """A scalar, or the scores of one row: both declare a rank that only a batch of 1 gives."""
    model = saved(tmp_path, declared, channels)
    if not declared:
        proto = onnx.load(model)
        proto.graph.output[0].type.tensor_type.shape.SetInParent()
        onnx.save(proto, model)
    made = onnxport.convert_model(model, target)
    assert made.report.verdict == "proven"
    assert all(each.shapes["x"][0] == 1 for each in made.report.fed)
    assert len({each.shapes["x"][2] for each in made.report.fed}) > 1
    (note,) = [note for note in made.run.artifacts[0].notes if "Squeeze" in note]
    assert "N is taken to be 1" in note


def test_axes_that_may_stay_are_refused_with_the_way_out(tmp_path: Path) -> None:
    """The file declares [N], which holds at every batch but 1."""
    with pytest.raises(CannotConvertError, match="--shape"):
        onnxport.convert_model(saved(tmp_path, "N", 1), "tflite")


def test_a_reader_of_scalars_says_that_the_axes_go(tmp_path: Path) -> None:
    """Paddle's exporter squeezes the bounds of a Range."""
    text = """<ir_version: 9, opset_import: ["" : 17]>
    g (float[6, 4] x, int64[K] bound) => (float[A, B] y) <int64 zero = {0}, int64 one = {1}> {
        end = Squeeze (bound)
        rows = Range (zero, end, one)
        y = Gather (x, rows)
    }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    x = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    np.savez(tmp_path / "in.npz", x=x, bound=np.array([5], np.int64))
    made = onnxport.convert_model(tmp_path / "model.onnx", "tflite", inputs=tmp_path / "in.npz")
    assert made.report.verdict == "proven"


@pytest.mark.parametrize("target", ["tflite", "coreml"])
def test_a_reader_that_fails_at_a_lower_rank_says_that_the_axis_stays(tmp_path: Path, target: str) -> None:
    """ESPnet's masks: ones of the sizes of [1, time, 1], squeezed, and an axis behind the time."""
    text = """<ir_version: 9, opset_import: ["" : 12]>
    g (float[T, 1] x) => (float[T, 2] y) <float[1, 2] w = {2.0, 3.0}> {
        row = Unsqueeze <axes = [0]> (x)
        sizes = Shape (row)
        ones = ConstantOfShape <value = float[1] {1.0}> (sizes)
        mask = Squeeze (ones)
        column = Unsqueeze <axes = [1]> (mask)
        masked = Mul (column, x)
        y = MatMul (masked, w)
    }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    made = onnxport.convert_model(tmp_path / "model.onnx", target)
    assert made.report.verdict == "proven"
    assert len({each.shapes["x"] for each in made.report.fed}) > 1


@pytest.mark.parametrize("target", ["tflite", "coreml"])
def test_an_axis_stays_that_a_reshape_flattens(tmp_path: Path, target: str) -> None:
    """MNE's ICLabel: the mean of the scores of four views of each picture, whose batch is a multiple of four."""
    text = """<ir_version: 9, opset_import: ["" : 14]>
    g (float[N, 3, 1, 1] x) => (float[M, 3] y) <int64[2] views = {4, -1}, int64[2] scores = {-1, 3}> {
        probabilities = Softmax <axis = 1> (x)
        rows = Squeeze (probabilities)
        by_view = Reshape (rows, views)
        mean = ReduceMean <axes = [0], keepdims = 0> (by_view)
        y = Reshape (mean, scores)
    }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    made = onnxport.convert_model(tmp_path / "model.onnx", target)
    assert made.report.verdict == "proven"
    assert len({each.shapes["x"][0] for each in made.report.fed}) > 1
