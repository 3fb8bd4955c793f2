"""Canonical quantization keeps the answers and puts every QuantizeLinear beside a DequantizeLinear."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.converters.tflite.models import model_of, run_onnx
from tests.optimizers.rewritten import Array, rewritten

SCALE, POINT = np.float32(0.05), np.uint8(100)
OTHER, SHIFTED = np.float32(0.09), np.uint8(90)
FLOATS = {"x": np.random.default_rng(0).standard_normal((2, 4, 6)).astype(np.float32) * 4}


class Graph:
    """Nodes and constants in the order of the calls."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def node(self, op: str, *inputs: str | Array | np.generic, outputs: int = 1, **attributes: object) -> str:
        names = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        results = [f"v{len(self.nodes)}.{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(op, names, results, **attributes))
        return results[0]

    def constant(self, array: Array | np.generic) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def quantized(self, value: str, scale: np.float32 = SCALE, point: np.uint8 = POINT) -> str:
        return self.node("QuantizeLinear", value, scale, point)

    def floats(self, value: str, scale: np.float32 = SCALE, point: np.uint8 = POINT) -> str:
        return self.node("DequantizeLinear", value, scale, point)


def moved(op: str, *operands: Array | np.generic, **attributes: object) -> Callable[[Graph], str]:
    return lambda g: g.floats(g.node(op, g.quantized("x"), *operands, **attributes))


def joined_integers(g: Graph) -> str:
    return g.floats(g.node("Concat", g.quantized("x"), g.quantized(g.node("Neg", "x")), axis=1))


def joined_floats(g: Graph) -> str:
    a, b = (
        g.floats(g.quantized("x")),
        g.floats(g.quantized(g.node("Neg", "x"), OTHER, SHIFTED), OTHER, SHIFTED),
    )
    return g.floats(g.quantized(g.node("Concat", a, b, axis=1)))


def used_as_numbers_too(g: Graph) -> str:
    numbers = g.quantized(g.node("Tanh", g.floats(g.quantized("x"))), OTHER, SHIFTED)
    again = g.node("Cast", numbers, to=onnx.TensorProto.FLOAT)
    return g.node("Add", again, g.floats(numbers, OTHER, SHIFTED))


def moved_weights(g: Graph) -> str:
    numbers = np.arange(-12, 12).reshape(6, 4).astype(np.int8)
    scales = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    weights = g.node("DequantizeLinear", numbers, scales, np.zeros(4, np.int8), axis=1)
    return g.node("MatMul", g.node("Transpose", weights), g.node("Transpose", "x", perm=[0, 2, 1]))


CASES = {
    "reshape": moved("Reshape", np.array([2, -1])),
    "transpose": moved("Transpose", perm=[2, 0, 1]),
    "slice": moved("Slice", np.array([1]), np.array([3]), np.array([1])),
    "pad with the number zero": moved("Pad", np.array([0, 1, 1, 0, 0, 2])),
    "pad with another": moved("Pad", np.array([0, 1, 1, 0, 0, 2]), np.uint8(7)),
    "max pool": moved("MaxPool", kernel_shape=[2], pads=[1, 0]),
    "split": moved("Split", axis=2, num_outputs=1),
    "gather": moved("Gather", np.array([3, 0]), axis=1),
    "two in a row": lambda g: g.floats(
        g.node("Reshape", g.node("Transpose", g.quantized("x"), perm=[2, 0, 1]), np.array([-1]))
    ),
    "concat of integers": joined_integers,
    "concat of floats": joined_floats,
    "numbers wanted": used_as_numbers_too,
    "weights": moved_weights,
}


@pytest.mark.parametrize("case", CASES)
def test_canonical_quantization_gives_bit_identical_answers(case: str) -> None:
    graph = Graph()
    CASES[case](graph)
    model = model_of(graph.nodes, FLOATS, graph.constants)
    settled = rewritten(model)
    (expected,), (answer,) = run_onnx(model, FLOATS).values(), run_onnx(settled, FLOATS).values()
    assert np.array_equal(answer, expected)
    beside = {"QuantizeLinear", "DequantizeLinear"}
    for node in settled.graph:
        if node.op_type == "QuantizeLinear" and case != "numbers wanted":
            assert {user.op_type for user in node.outputs[0].consumers()} <= beside
        if node.op_type == "DequantizeLinear" and (source := node.inputs[0].producer()) is not None:
            assert source.op_type in beside


def test_integers_that_are_an_output_keep_their_name() -> None:
    graph = Graph()
    numbers = graph.quantized(graph.node("Tanh", graph.floats(graph.quantized("x"))), OTHER, SHIFTED)
    model = model_of(graph.nodes, FLOATS, graph.constants)
    settled = rewritten(model)
    assert [value.name for value in settled.graph.outputs] == [numbers]
    assert np.array_equal(run_onnx(settled, FLOATS)[numbers], run_onnx(model, FLOATS)[numbers])
