"""Models of one integer product each, whose sums of two products leave 16 bits, and what they have to answer.

The answers are NumPy's, in 64 bits; what the operators mean is told by ONNX's and ONNX Runtime's specifications.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]

ROWS, DEPTH, COLUMNS = 4, 64, 8
CHANNELS, SIDE = 16, 8
_MICROSOFT = "com.microsoft"
_TYPES: Mapping[str, Any] = {"u8": np.uint8, "s8": np.int8}
_ELEMENTS = {"u8": TensorProto.UINT8, "s8": TensorProto.INT8}


@dataclass(frozen=True)
class Product:
    """A model, its input `x`, the exact answer `y`, and how far from it rounding after the sum may lead."""

    model: ModelProto
    x: Array
    y: Array
    tolerance: float

    def __post_init__(self) -> None:
        for size in self.y.shape:
            self.model.graph.output[0].type.tensor_type.shape.dim.add().dim_value = size


def _random(dtype: str, shape: tuple[int, ...], seed: int) -> Array:
    low, high = (188, 256) if dtype == "u8" else (60, 128)
    return np.random.default_rng(seed).integers(low, high, shape).astype(_TYPES[dtype])


def _model(nodes: Any, x: Any, constants: Mapping[str, Array], y: int) -> ModelProto:
    graph = helper.make_graph(
        nodes if isinstance(nodes, list) else [nodes],
        "product",
        [x],
        [helper.make_tensor_value_info("y", y, None)],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(_MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _input(dtype: int, shape: tuple[int, ...]) -> Any:
    return helper.make_tensor_value_info("x", dtype, shape)


def _zero(dtype: str) -> Array:
    return np.array(0, _TYPES[dtype])


_ONE = np.array(1, np.float32)


def _scaled(sums: Array, dtype: str) -> tuple[Array, Array]:
    """A scale that has the largest sum become 100, and the sums in it."""
    scale = np.array(np.abs(sums).max() / 100, np.float32)
    limits = np.iinfo(_TYPES[dtype])
    return scale, np.clip(np.rint(sums / scale), limits.min, limits.max)


def matmul_integer(activations: str, weights: str) -> Product:
    x, w = _random(activations, (ROWS, DEPTH), 1), _random(weights, (DEPTH, COLUMNS), 2)
    model = _model(
        helper.make_node("MatMulInteger", ["x", "w"], ["y"]),
        _input(_ELEMENTS[activations], x.shape),
        {"w": w},
        TensorProto.INT32,
    )
    return Product(model, x, x.astype(np.int64) @ w, 0)


def zero_points(activations: str, weights: str) -> Product:
    """MatMulInteger with a zero point for every column."""
    x, w = _random(activations, (ROWS, DEPTH), 1), _random(weights, (DEPTH, COLUMNS), 2)
    zeros = (np.arange(COLUMNS) - 3 + (128 if weights == "u8" else 0)).astype(_TYPES[weights])
    model = _model(
        helper.make_node("MatMulInteger", ["x", "w", "xz", "wz"], ["y"]),
        _input(_ELEMENTS[activations], x.shape),
        {"w": w, "xz": np.array(7, _TYPES[activations]), "wz": zeros},
        TensorProto.INT32,
    )
    return Product(model, x, (x.astype(np.int64) - 7) @ (w.astype(np.int64) - zeros), 0)


def computed_weights(activations: str, weights: str) -> Product:
    """MatMulInteger of which the second operand is no constant."""
    x, w = _random(activations, (ROWS, DEPTH), 1), _random(weights, (DEPTH, COLUMNS), 2)
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.INT32),
        helper.make_node("ReduceMax", ["wide"], ["most"], keepdims=0),
        helper.make_node("Cast", ["most"], ["any"], to=TensorProto.BOOL),
        helper.make_node("Where", ["any", "w", "none"], ["v"]),
        helper.make_node("MatMulInteger", ["x", "v"], ["y"]),
    ]
    constants = {"w": w, "none": np.zeros_like(w)}
    model = _model(nodes, _input(_ELEMENTS[activations], x.shape), constants, TensorProto.INT32)
    return Product(model, x, x.astype(np.int64) @ w, 0)


def qlinear_matmul(activations: str, weights: str) -> Product:
    x, w = _random(activations, (ROWS, DEPTH), 1), _random(weights, (DEPTH, COLUMNS), 2)
    scale, y = _scaled(x.astype(np.int64) @ w, activations)
    constants = {"w": w, "one": _ONE, "scale": scale, "z": _zero(activations), "wz": _zero(weights)}
    node = helper.make_node("QLinearMatMul", ["x", "one", "z", "w", "one", "wz", "scale", "z"], ["y"])
    return Product(
        _model(node, _input(_ELEMENTS[activations], x.shape), constants, _ELEMENTS[activations]), x, y, 1
    )


def qgemm(activations: str, weights: str) -> Product:
    x, w = _random(activations, (ROWS, DEPTH), 1), _random(weights, (COLUMNS, DEPTH), 2)
    constants = {"w": w, "one": _ONE, "z": _zero(activations), "wz": _zero(weights)}
    node = helper.make_node("QGemm", ["x", "one", "z", "w", "one", "wz"], ["y"], domain=_MICROSOFT, transB=1)
    model = _model(node, _input(_ELEMENTS[activations], x.shape), constants, TensorProto.FLOAT)
    return Product(model, x, x.astype(np.int64) @ w.T, 1)


def matmul_integer_to_float(activations: str, weights: str) -> Product:
    x, w = _random(activations, (ROWS, DEPTH), 1), _random(weights, (DEPTH, COLUMNS), 2)
    node = helper.make_node("MatMulIntegerToFloat", ["x", "w", "one", "one"], ["y"], domain=_MICROSOFT)
    model = _model(node, _input(_ELEMENTS[activations], x.shape), {"w": w, "one": _ONE}, TensorProto.FLOAT)
    return Product(model, x, x.astype(np.int64) @ w, 1)


def dynamic_matmul(activations: str, weights: str) -> Product:
    """DynamicQuantizeMatMul; its activations are whole numbers 0 to 255, which 8 bits hold exactly."""
    x = _random("u8", (ROWS, DEPTH), 1).astype(np.float32)
    x[0, :2] = 0, 255
    w = _random(weights, (DEPTH, COLUMNS), 2)
    node = helper.make_node("DynamicQuantizeMatMul", ["x", "w", "one"], ["y"], domain=_MICROSOFT)
    model = _model(node, _input(TensorProto.FLOAT, x.shape), {"w": w, "one": _ONE}, TensorProto.FLOAT)
    return Product(model, x, x.astype(np.float64) @ w, 1)


def qlinear_conv(activations: str, weights: str, groups: int = 1, kernel: int = 3) -> Product:
    x = _random(activations, (1, CHANNELS, SIDE, SIDE), 1)
    w = _random(weights, (CHANNELS, CHANNELS // groups, kernel, kernel), 2)
    scale, y = _scaled(_convolved(x.astype(np.int64), w.astype(np.int64), groups), activations)
    constants = {"w": w, "one": _ONE, "scale": scale, "z": _zero(activations), "wz": _zero(weights)}
    names = ["x", "one", "z", "w", "one", "wz", "scale", "z"]
    node = helper.make_node("QLinearConv", names, ["y"], group=groups)
    return Product(
        _model(node, _input(_ELEMENTS[activations], x.shape), constants, _ELEMENTS[activations]), x, y, 1
    )


def dequantized_conv(activations: str, weights: str) -> Product:
    """Conv between DequantizeLinear and QuantizeLinear, which ONNX Runtime fuses."""
    x = _random(activations, (1, CHANNELS, SIDE, SIDE), 1)
    w = _random(weights, (CHANNELS, CHANNELS, 3, 3), 2)
    scales = np.linspace(0.5, 1.5, CHANNELS).astype(np.float32)
    wide = w.astype(np.float64) * scales[:, None, None, None]
    scale, y = _scaled(_convolved(x.astype(np.float64), wide, 1), activations)
    zeros = np.zeros(CHANNELS, _TYPES[weights])
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "one", "z"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["b"], axis=0),
        helper.make_node("Conv", ["a", "b"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "scale", "z"], ["y"]),
    ]
    constants = {"w": w, "ws": scales, "wz": zeros, "one": _ONE, "scale": scale, "z": _zero(activations)}
    return Product(
        _model(nodes, _input(_ELEMENTS[activations], x.shape), constants, _ELEMENTS[activations]), x, y, 1
    )


def _convolved(x: Array, w: Array, groups: int) -> Array:
    size, per = w.shape[-1], w.shape[1]
    windows = np.lib.stride_tricks.sliding_window_view(x[0], (size, size), axis=(1, 2))
    parts = [
        np.einsum(
            "chwij,ocij->ohw",
            windows[g * per : (g + 1) * per],
            w[g * len(w) // groups : (g + 1) * len(w) // groups],
        )
        for g in range(groups)
    ]
    return np.concatenate(parts)[None]


# What saturates on a CPU without VNNI when int8 weights stay as they are.
PRODUCTS: Mapping[str, Callable[[str, str], Product]] = {
    "MatMulInteger": matmul_integer,
    "MatMulInteger with zero points": zero_points,
    "MatMulInteger of computed weights": computed_weights,
    "QLinearMatMul": qlinear_matmul,
    "QGemm": qgemm,
    "MatMulIntegerToFloat": matmul_integer_to_float,
    "DynamicQuantizeMatMul": dynamic_matmul,
    "QLinearConv": qlinear_conv,
    "QLinearConv 1x1": lambda a, w: qlinear_conv(a, w, kernel=1),
    "QLinearConv in groups": lambda a, w: qlinear_conv(a, w, groups=4),
    "depthwise QLinearConv": lambda a, w: qlinear_conv(a, w, groups=CHANNELS),
    "Conv between DequantizeLinear": dequantized_conv,
}
