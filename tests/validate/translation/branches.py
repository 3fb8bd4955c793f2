"""A network with the places for faults that the digits' has not: a sum, a difference, a mean, padding on one side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]


def write(path: Path) -> Path:
    """Write the network, of [1, 3, 8, 8] to 5 classes; its third convolution has enough weights to be rounded."""
    draw = np.random.default_rng(0)

    def weight(*shape: int) -> Array:
        return (draw.normal(size=shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    constants = {
        "first.w": weight(8, 3, 3, 3),
        "first.b": weight(8),
        "second.w": weight(8, 8, 1, 1),
        "second.b": weight(8),
        "third.w": weight(8, 8, 3, 3),
        "third.b": weight(8),
        "product.w": weight(5, 16) * 3,
        "product.b": weight(5),
        "axes": np.array([2, 3]),
    }
    nodes = [
        helper.make_node("Conv", ["x", "first.w", "first.b"], ["a"], "first", pads=[2, 2, 0, 0]),
        helper.make_node("LeakyRelu", ["a"], ["b"], "leaky", alpha=0.1),
        helper.make_node("Conv", ["b", "second.w", "second.b"], ["c"], "second"),
        helper.make_node("Relu", ["c"], ["d"], "relu"),
        helper.make_node("Add", ["b", "d"], ["e"], "sum"),
        helper.make_node("Conv", ["e", "third.w", "third.b"], ["f"], "third", pads=[1, 1, 1, 1]),
        helper.make_node("Sub", ["f", "e"], ["g"], "difference"),
        helper.make_node("Concat", ["g", "e"], ["h"], "both", axis=1),
        helper.make_node("ReduceMean", ["h", "axes"], ["i"], "mean"),
        helper.make_node("Flatten", ["i"], ["j"], "flatten"),
        helper.make_node("Gemm", ["j", "product.w", "product.b"], ["k"], "product", transB=1),
        helper.make_node("Softmax", ["k"], ["y"], "softmax", axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "branches",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 18)])
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def samples(count: int) -> list[dict[str, Array]]:
    draw = np.random.default_rng(1)
    return [{"x": draw.normal(size=(1, 3, 8, 8)).astype(np.float32)} for _ in range(count)]
