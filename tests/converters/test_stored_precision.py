"""Weights that a model stores in few bits keep them, and a file that grows says why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxport
from onnxport.formats.model import Model
from onnxport.optimizers.opset import lift
from onnxport.optimizers.stored_weights import write_dequantization
from tests.optimizers.rewritten import Array, run

CHANNELS, COLUMNS = 64, 400


def stored(path: Path, opset: int, scale: tuple[int, ...], *, zero: bool = False, swap: bool = False) -> Path:
    """A product whose weights are int8 behind Cast, Sub and Mul."""
    random = np.random.default_rng(0)
    weights = random.integers(-128, 128, (COLUMNS, CHANNELS)).astype(np.int8)
    constants = {"w": weights, "scale": random.uniform(0.01, 0.02, scale).astype(np.float32)}
    nodes = [helper.make_node("Cast", ["w"], ["wide"], to=TensorProto.FLOAT)]
    if zero:
        constants["zero"] = random.integers(-4, 5, scale).astype(np.float32)
        nodes.append(helper.make_node("Sub", ["wide", "zero"], ["centred"]))
    factors = ["centred" if zero else "wide", "scale"]
    nodes += [
        helper.make_node("Mul", factors[::-1] if swap else factors, ["floats"]),
        helper.make_node("MatMul", ["x", "floats"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", COLUMNS])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", CHANNELS])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("scale", [(), (1,), (1, 1), (CHANNELS,), (COLUMNS, 1)])
@pytest.mark.parametrize("zero", [False, True])
def test_dequantization_computes_the_same(
    tmp_path: Path, opset: int, scale: tuple[int, ...], zero: bool
) -> None:
    path = stored(tmp_path / "m.onnx", opset, scale, zero=zero, swap=zero)
    model = Model.load(path)
    assert write_dequantization(model) == 1
    x = np.random.default_rng(1).standard_normal((3, COLUMNS)).astype(np.float32)
    if opset < 13:
        lift(model.ir)
    np.testing.assert_array_equal(run(model, {"x": x})[0], run(Model.load(path), {"x": x})[0])


@pytest.mark.parametrize("scale", [(3, 1, CHANNELS), (COLUMNS, CHANNELS)])
def test_other_products_stay(tmp_path: Path, scale: tuple[int, ...]) -> None:
    """Scales that widen the result, or that differ along two axes, have no DequantizeLinear."""
    model = Model.load(stored(tmp_path / "m.onnx", 17, (CHANNELS,)))
    values: Array = np.ones(scale, np.float32)
    model.graph.initializers["scale"].const_value = ir.Tensor(values, name="scale")
    assert write_dequantization(model) == 0


@pytest.mark.parametrize("target", ["coreml", "tflite", "ort"])
def test_the_file_is_as_small_as_the_model(tmp_path: Path, target: str) -> None:
    path = stored(tmp_path / "m.onnx", 11, (CHANNELS,))
    made = onnxport.convert_model(path, target)
    assert made.report.verdict == "proven"
    files = [made.path] if made.path.is_file() else [each for each in made.path.rglob("*") if each.is_file()]
    assert sum(each.stat().st_size for each in files) < 2 * path.stat().st_size


@pytest.mark.parametrize("target", ["coreml", "tflite", "ort"])
def test_a_file_with_computed_constants_says_so(tmp_path: Path, target: str) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 200] x) => (float[N, 200] y) {
        zero = Constant <value_float = 0.0> ()
        end = Constant <value_float = 200.0> ()
        one = Constant <value_float = 1.0> ()
        step = Constant <value_float = 0.0314> ()
        axis = Constant <value_ints = [1]> ()
        times = Range (zero, end, one)
        column = Unsqueeze (times, axis)
        angles = Mul (times, column)
        scaled = Mul (angles, step)
        basis = Cos (scaled)
        y = MatMul (x, basis)
    }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    made = onnxport.convert_model(tmp_path / "m.onnx", target)
    assert made.report.verdict == "proven"
    (note,) = [note for note in made.run.artifacts[0].notes if "the source computes in every run" in note]
    assert "the file stores 160" in note or "the file stores 15" in note


@pytest.mark.parametrize("target", ["tflite", "coreml"])
def test_recurrent_weights_of_both_directions_stay_int8_or_a_note_says_why(
    tmp_path: Path, target: str
) -> None:
    """The .tflite file has a weight for each direction, of half the source's elements."""
    random = np.random.default_rng(0)
    hidden, features = 128, 96
    constants = {
        "w8": random.integers(-127, 128, (2, 4 * hidden, features)).astype(np.int8),
        "r8": random.integers(-127, 128, (2, 4 * hidden, hidden)).astype(np.int8),
        "scale": np.array(0.004, np.float32),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["w8", "scale"], ["w"]),
        helper.make_node("DequantizeLinear", ["r8", "scale"], ["r"]),
        helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=hidden, direction="bidirectional"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [7, "N", features])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [7, 2, "N", hidden])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    made = onnxport.convert_model(path, target)
    assert made.report.verdict == "proven"
    if target == "coreml":
        assert any("stores 917.5 kB of weights as floats" in note for note in made.run.artifacts[0].notes)
        return
    stored = 2 * 4 * hidden * (features + hidden)
    assert made.path.stat().st_size < 1.3 * stored


def deep(path: Path, op: str, length: int = 99) -> Path:
    """A chain of operators without constants."""
    nodes = [helper.make_node(op, [f"v{n}"], [f"v{n + 1}"]) for n in range(length)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in ("v0", f"v{length}")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_a_file_whose_graph_takes_the_room_says_so(tmp_path: Path) -> None:
    path = deep(tmp_path / "m.onnx", "Atan")
    made = onnxport.convert_model(path, "ort")
    assert made.path.stat().st_size > 2 * path.stat().st_size
    (note,) = [note for note in made.run.artifacts[0].notes if "describe the graph" in note]
    assert "0.0 kB are constants (of the source's, 0.0 kB)" in note


@pytest.mark.parametrize("target", ["tflite", "coreml"])
def test_a_small_file_of_a_target_says_what_takes_the_room(tmp_path: Path, target: str) -> None:
    made = onnxport.convert_model(deep(tmp_path / "m.onnx", "Sin"), target)
    (note,) = [note for note in made.run.artifacts[0].notes if "describes the graph" in note]
    assert "about 0.0 kB are constants" in note


@pytest.mark.parametrize("target", ["ort", "tflite", "coreml"])
def test_a_tiny_file_that_is_larger_than_its_source_says_why(tmp_path: Path, target: str) -> None:
    made = onnxport.convert_model(deep(tmp_path / "m.onnx", "Sin", 2), target)
    (artifact,) = made.run.artifacts
    assert artifact.ratio > 1.15
    assert any("the graph" in note for note in artifact.notes)
