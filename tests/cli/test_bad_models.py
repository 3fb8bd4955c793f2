"""Models that ONNX's checker lets through and that no target can hold, or that contradict themselves.

Each runs the real command in a fresh process, as test_failures.py does.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.cli.failing import Case, assert_fails, registering
from tests.cli.sandbox import Sandbox

CASES: dict[str, Case] = {}
case = registering(CASES)

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
Dims = Sequence[int | str]


def tensor(name: str, dims: Dims, type_: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, type_, dims)


def zeros(name: str, *dims: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.zeros(dims, np.float32), name)


def convert(
    sandbox: Sandbox,
    nodes: Sequence[onnx.NodeProto],
    dims: Dims,
    result: onnx.ValueInfoProto,
    *weights: onnx.TensorProto,
    options: Sequence[str] = (),
) -> tuple[str | Path, ...]:
    """The command for a model of one input `x`."""
    graph = helper.make_graph(nodes, "graph", [tensor("x", dims)], [result], list(weights))
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("acme", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), sandbox.folder / "bad.onnx")
    return ("convert", "bad.onnx", "--to", "tflite", *options)


def branch(name: str, outputs: int) -> onnx.GraphProto:
    names = [f"{name}{number}" for number in range(outputs)]
    nodes = [helper.make_node("Relu", ["x"], [each]) for each in names]
    return helper.make_graph(nodes, name, [], [tensor(each, [1, 4]) for each in names])


# ---- what contradicts itself is said in ONNX Runtime's words, and is no bug of ours


@case(
    4,
    "bad.onnx has opset 3, older than 7, the oldest that ONNX Runtime runs; export it again with a newer opset",
)
def an_opset_before_those_of_onnx_runtime(sandbox: Sandbox) -> tuple[str | Path, ...]:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "graph", [tensor("x", [1, 3])], [tensor("y", [1, 3])]
    )
    old = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 3)], ir_version=3)
    onnx.save(old, sandbox.folder / "bad.onnx")
    return ("optimize", "bad.onnx")


@case(4, "bad.onnx is not a valid ONNX model", "'else_branch' of its If 'y'", "2 outputs, and needs 0 and 1")
def branches_with_other_output_counts(sandbox: Sandbox) -> tuple[str | Path, ...]:
    yes = helper.make_tensor("yes", TensorProto.BOOL, [], [True])
    node = helper.make_node("If", ["yes"], ["y"], then_branch=branch("a", 1), else_branch=branch("b", 2))
    return convert(sandbox, [node], [1, 4], tensor("y", [1, 4]), yes)


@case(2, "LSTM", "Input B must have shape {1,8*3}")
def recurrent_weights_of_a_wrong_shape(sandbox: Sandbox) -> tuple[str | Path, ...]:
    node = helper.make_node("LSTM", ["x", "W", "R", "B"], ["y"], hidden_size=3)
    weights = zeros("W", 1, 12, 5), zeros("R", 1, 12, 3), zeros("B", 1, 23)
    return convert(sandbox, [node], [2, 1, 5], tensor("y", [2, 1, 1, 3]), *weights)


@case(4, "ONNX Runtime cannot load", "'block_size' must be non-negative")
def blocks_of_a_negative_size(sandbox: Sandbox) -> tuple[str | Path, ...]:
    scales = numpy_helper.from_array(np.ones((1, 2), np.float32), "s")
    node = helper.make_node("QuantizeLinear", ["x", "s"], ["y"], axis=1, block_size=-1)
    arguments = convert(sandbox, [node], [1, 4], tensor("y", [1, 4], TensorProto.UINT8), scales)
    model = onnx.load(sandbox.folder / "bad.onnx")
    model.opset_import[0].version = 21
    onnx.save(model, sandbox.folder / "bad.onnx")
    return arguments


@case(2, "LSTM", "Input B must have shape {1,8*3}")
def recurrent_weights_of_a_wrong_shape_unproven(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return (*CASES["recurrent_weights_of_a_wrong_shape"].prepare(sandbox), "--no-validate")


@case(1, "whether bad.tflite is equivalent", "inconclusive")
def scale_that_no_kernel_bears(sandbox: Sandbox) -> tuple[str | Path, ...]:
    """The interpreter refuses one so large, and the compiler dies of the least; neither is a quantized tensor's."""
    scale = numpy_helper.from_array(np.array(3e38, np.float32), "s")
    point = numpy_helper.from_array(np.array(3, np.uint8), "z")
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    return convert(sandbox, nodes, [1, 4], tensor("y", [1, 4]), scale, point)


# ---- what TFLite cannot hold


@case(3, "AveragePool", "'pool'", "--shape x=N,3,H,W (a number for N, H, W)")
def size_that_the_operator_needs(sandbox: Sandbox) -> tuple[str | Path, ...]:
    attributes: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"}
    node = helper.make_node("AveragePool", ["x"], ["y"], "pool", **attributes)
    return convert(sandbox, [node], ["N", 3, "H", "W"], tensor("y", ["N", 3, "h", "w"]))


@case(3, "Expand", "'large'", "above 2147483647")
def size_above_32_bits(sandbox: Sandbox) -> tuple[str | Path, ...]:
    sizes = numpy_helper.from_array(np.array([2**40]), "sizes")
    nodes = [
        helper.make_node("Expand", ["x", "sizes"], ["large"]),
        helper.make_node("ReduceSum", ["large"], ["y"]),
    ]
    return convert(sandbox, nodes, [1], tensor("y", [1]), sizes)


@case(3, "input", "'x'", "above 2147483647")
def input_above_32_bits(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return convert(sandbox, [helper.make_node("ReduceSum", ["x"], ["y"])], [2**32], tensor("y", [1]))


@case(3, "ReduceMean", "reduces axis 2 of a value of 2 dimensions")
def axes_that_a_value_does_not_have(sandbox: Sandbox) -> tuple[str | Path, ...]:
    node = helper.make_node("MeanVarianceNormalization", ["x"], ["y"])
    return convert(sandbox, [node], [1, 4], tensor("y", [1, 4]))


@case(3, "acme::Foo", "value_info")
def custom_operator_of_unknown_result(sandbox: Sandbox) -> tuple[str | Path, ...]:
    nodes = [helper.make_node("Foo", ["x"], ["a"], domain="acme"), helper.make_node("Relu", ["a"], ["y"])]
    return convert(sandbox, nodes, [1, 4], tensor("y", [1, 4]), options=("--allow-custom-ops",))


@case(2, "output 'y' of bad.onnx", "bfloat16", "--no-validate")
def output_that_cannot_be_compared(sandbox: Sandbox) -> tuple[str | Path, ...]:
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.BFLOAT16)
    return convert(sandbox, [node], ["N", 4], tensor("y", ["N", 4], TensorProto.BFLOAT16))


@case(6, "ONNX Runtime running bad.onnx hung", "--timeout")
def loop_of_a_quintillion_steps(sandbox: Sandbox) -> tuple[str | Path, ...]:
    """The compiler's own trial run has to leave it out: it would wait for half an hour."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["v", "v"], ["w"])],
        "body",
        [tensor("i", [], INT64), tensor("go", [], TensorProto.BOOL), tensor("v", [1, 4])],
        [tensor("on", [], TensorProto.BOOL), tensor("w", [1, 4])],
    )
    steps = numpy_helper.from_array(np.array(2**60), "steps")
    node = helper.make_node("Loop", ["steps", "", "x"], ["y"], body=body)
    return convert(sandbox, [node], [1, 4], tensor("y", [1, 4]), steps, options=("--timeout", "2"))


# ---- labels


@case(2, "2.txt holds 2 labels")
def labels_of_another_count(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (sandbox.folder / "2.txt").write_text("a\nb\n")
    node = helper.make_node("Relu", ["x"], ["y"])
    return convert(sandbox, [node], [1, 4], tensor("y", [1, 4]), options=("--labels", "2.txt"))


@case(2, "the label file 0.txt is empty")
def no_labels(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (sandbox.folder / "0.txt").touch()
    node = helper.make_node("Relu", ["x"], ["y"])
    return convert(sandbox, [node], [1, 4], tensor("y", [1, 4]), options=("--labels", "0.txt"))


@pytest.mark.parametrize("name", CASES)
def test_bad_models_are_refused(name: str, sandbox: Sandbox) -> None:
    assert_fails(CASES[name], sandbox)
