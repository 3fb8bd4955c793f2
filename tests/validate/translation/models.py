"""A float model, and quantized forms of it that are written by hand: scales and codes are chosen, not computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from onnxport.formats.model import Model

Array = np.ndarray[Any, np.dtype[Any]]

# Codes of the weight, with a step of 1/64 for channel 0 and 1/32 for channel 1; float weights are up to 0.4 steps off.
CODES: Array = np.array([[[[40, -64], [0, 127]]], [[[-127, 3], [64, 20]]]], np.int8)
STEPS: Array = np.array([1 / 64, 1 / 32], np.float32)
OFF: Array = np.array([[[[0.4, -0.3], [0.1, 0]]], [[[0, 0.2], [-0.4, 0.4]]]], np.float32)
WEIGHT: Array = ((CODES + OFF) * STEPS.reshape(2, 1, 1, 1)).astype(np.float32)
BIAS: Array = np.array([0.5, -0.25], np.float32)
MATRIX_CODES: Array = np.array([[100, -50], [-127, 12]], np.int8)
MATRIX: Array = (MATRIX_CODES / np.float32(64)).astype(np.float32)
IN, MIDDLE = 1 / 128, 1 / 64  # steps of the input and of the convolution's result; zero points 128 and 0


def source(*, normalized: bool = False) -> Model:
    """Conv, Relu, GlobalAveragePool, Flatten and MatMul; `normalized`: the weight halved, BatchNormalization behind."""
    weight, bias = WEIGHT, BIAS
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv")]
    constants = {"w": weight, "b": bias, "m": MATRIX}
    if normalized:
        constants |= {"w": weight / 2, "b": (bias - 1) / 2}
        constants |= {
            "scale": np.full(2, 4, np.float32),
            "offset": np.ones(2, np.float32),
            "mean": np.zeros(2, np.float32),
            "var": np.full(2, 4, np.float32),
        }
        norm = ["c0", "scale", "offset", "mean", "var"]
        nodes = [
            helper.make_node("Conv", ["x", "w", "b"], ["c0"], "conv"),
            helper.make_node("BatchNormalization", norm, ["c"], "norm", epsilon=0.0),
        ]
    nodes += [helper.make_node("Relu", ["c"], ["r"], "relu"), *_tail("r")]
    return build(nodes, constants)


def _tail(value: str, matrix: str = "m") -> list[onnx.NodeProto]:
    return [
        helper.make_node("GlobalAveragePool", [value], ["g"], "pool"),
        helper.make_node("Flatten", ["g"], ["f"], "flatten"),
        helper.make_node("MatMul", ["f", matrix], ["y"], "product"),
    ]


def quantized(*, relu: bool = False, more: dict[str, Array] | None = None) -> Model:
    """`source` with integers: the convolution between two grids, whose second one does what Relu did.

    Args:
        relu: whether Relu stays.
        more: other constants in place of those with these names.
    """
    constants: dict[str, Array] = {
        "w.codes": CODES,
        "w.scale": STEPS,
        "w.zero": np.zeros(2, np.int8),
        "b.codes": np.array([0.5 / (IN / 64), -0.25 / (IN / 32)], np.int32),
        "b.scale": (STEPS * np.float32(IN)).astype(np.float32),
        "b.zero": np.zeros(2, np.int32),
        "x.scale": np.array(IN, np.float32),
        "x.zero": np.array(128, np.uint8),
        "c.scale": np.array(MIDDLE, np.float32),
        "c.zero": np.array(0, np.uint8),
        "c.back": np.array(MIDDLE, np.float32),
        "m.codes": MATRIX_CODES,
        "m.scale": np.array(1 / 64, np.float32),
        "m.zero": np.array(0, np.int8),
        **(more or {}),
    }
    before, after = ("c", "r") if relu else ("c", "c")
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "x.scale", "x.zero"], ["x.q"], "x.quantize"),
        helper.make_node("DequantizeLinear", ["x.q", "x.scale", "x.zero"], ["x.d"], "x.dequantize"),
        helper.make_node("DequantizeLinear", ["w.codes", "w.scale", "w.zero"], ["w.d"], axis=0),
        helper.make_node("DequantizeLinear", ["b.codes", "b.scale", "b.zero"], ["b.d"], axis=0),
        helper.make_node("DequantizeLinear", ["m.codes", "m.scale", "m.zero"], ["m.d"]),
        helper.make_node("Conv", ["x.d", "w.d", "b.d"], [before], "conv"),
        *([helper.make_node("Relu", ["c"], ["r"], "relu")] if relu else []),
        helper.make_node("QuantizeLinear", [after, "c.scale", "c.zero"], ["c.q"], "c.quantize"),
        helper.make_node("DequantizeLinear", ["c.q", "c.back", "c.zero"], ["c.d"], "c.dequantize"),
        *_tail("c.d", "m.d"),
    ]
    return build(nodes, constants)


def build(nodes: Sequence[onnx.NodeProto], constants: dict[str, Array]) -> Model:
    graph = helper.make_graph(
        list(nodes),
        "made by hand",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    proto = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)], ir_version=9
    )
    onnx.checker.check_model(proto)
    return Model(ir.from_proto(proto))


def pictures(count: int = 2) -> list[dict[str, Array]]:
    """Numbers on the input's grid, from -1 to 127/128."""
    random = np.random.default_rng(0)
    return [{"x": (random.integers(-128, 128, (1, 1, 6, 6)) * IN).astype(np.float32)} for _ in range(count)]
