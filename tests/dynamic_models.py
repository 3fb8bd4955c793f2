"""Dynamically quantized models in each form that quantizers write, with what they compute in float arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray
Build = Callable[[np.random.Generator], tuple[onnx.ModelProto, Array, Array]]
_MICROSOFT = "com.microsoft"


def _model(
    nodes: list[onnx.NodeProto], inputs: dict[str, Array], y: Array, **constants: Array
) -> onnx.ModelProto:
    ports = [helper.make_tensor_value_info(name, 1, array.shape) for name, array in inputs.items()]
    result = helper.make_tensor_value_info("y", 1, y.shape)
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", ports, [result], stored)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(_MICROSOFT, 1)]
    return helper.make_model(graph, ir_version=9, opset_imports=opsets)


def _codes(random: np.random.Generator, *shape: int) -> Array:
    return random.integers(-127, 128, shape).astype(np.int8)


def _scaled(product: str) -> list[onnx.NodeProto]:
    """The nodes behind an integer product: Cast, and Mul by both scales."""
    return [
        helper.make_node("Cast", [product], ["floats"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", ["x_scale", "w_scale"], ["scales"]),
        helper.make_node("Mul", ["floats", "scales"], ["y"]),
    ]


_MEASURE = helper.make_node("DynamicQuantizeLinear", ["x"], ["x_codes", "x_scale", "x_zero"])


def matmul(random: np.random.Generator, channels: bool = False) -> tuple[onnx.ModelProto, Array, Array]:
    """MatMulInteger; with `channels` each column has a scale and a zero point of its own."""
    x, w = random.standard_normal((3, 16)).astype(np.float32), _codes(random, 16, 5)
    size = (5,) if channels else ()
    scale = random.uniform(0.01, 0.02, size).astype(np.float32)
    zero = random.integers(-5, 6, size).astype(np.int8)
    y = x @ ((w.astype(np.float32) - zero) * scale)
    product = helper.make_node("MatMulInteger", ["x_codes", "w", "x_zero", "w_zero"], ["product"])
    nodes = [_MEASURE, product, *_scaled("product")]
    return _model(nodes, {"x": x}, y, w=w, w_scale=scale, w_zero=np.asarray(zero)), x, y


def matmul_per_channel(random: np.random.Generator) -> tuple[onnx.ModelProto, Array, Array]:
    return matmul(random, channels=True)


def convolution(random: np.random.Generator) -> tuple[onnx.ModelProto, Array, Array]:
    """ConvInteger with a stride."""
    x, w = random.standard_normal((1, 3, 8, 8)).astype(np.float32), _codes(random, 4, 3, 2, 2)
    scale = np.float32(0.01)
    weights = w.astype(np.float32) * scale
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 2), axis=(2, 3))[:, :, ::2, ::2]
    y = np.einsum("nchwij,ocij->nohw", windows, weights).astype(np.float32)
    product = helper.make_node("ConvInteger", ["x_codes", "w", "x_zero"], ["product"], strides=[2, 2])
    nodes = [_MEASURE, product, *_scaled("product")]
    return _model(nodes, {"x": x}, y, w=w, w_scale=np.asarray(scale)), x, y


def biased(random: np.random.Generator) -> tuple[onnx.ModelProto, Array, Array]:
    """ConvInteger with a bias that is rounded to the product's scale in every run, as older quantizers write it."""
    x, w = random.standard_normal((1, 3, 6, 6)).astype(np.float32), _codes(random, 4, 3, 1, 1)
    scale, bias = np.float32(0.01), random.standard_normal(4).astype(np.float32)
    y = np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0] * scale) + bias.reshape(1, 4, 1, 1)
    nodes = [
        _MEASURE,
        helper.make_node("ConvInteger", ["x_codes", "w", "x_zero"], ["product"]),
        helper.make_node("Mul", ["x_scale", "w_scale"], ["step"]),
        helper.make_node("Div", ["b", "step"], ["steps"]),
        helper.make_node("Floor", ["steps"], ["whole"]),
        helper.make_node("Cast", ["whole"], ["b_codes"], to=onnx.TensorProto.INT32),
        helper.make_node("Reshape", ["b_codes", "sizes"], ["b_wide"]),
        helper.make_node("Add", ["product", "b_wide"], ["sum"]),
        *_scaled("sum"),
    ]
    sizes = np.array([1, 4, 1, 1], np.int64)
    return (
        _model(nodes, {"x": x}, y.astype(np.float32), w=w, w_scale=np.asarray(scale), b=bias, sizes=sizes),
        x,
        y,
    )


def squares(random: np.random.Generator) -> tuple[onnx.ModelProto, Array, Array]:
    """MatMulInteger of two measured operands, as in attention."""
    x = random.standard_normal((6, 6)).astype(np.float32)
    again = helper.make_node("DynamicQuantizeLinear", ["x"], ["w", "w_scale", "w_zero"])
    product = helper.make_node("MatMulInteger", ["x_codes", "w", "x_zero", "w_zero"], ["product"])
    return _model([_MEASURE, again, product, *_scaled("product")], {"x": x}, x @ x), x, x @ x


def fused(random: np.random.Generator) -> tuple[onnx.ModelProto, Array, Array]:
    """ONNX Runtime's DynamicQuantizeMatMul with a bias and a zero point."""
    x, w = (
        random.standard_normal((3, 16)).astype(np.float32),
        random.integers(0, 256, (16, 5)).astype(np.uint8),
    )
    scale, bias = np.float32(0.01), random.standard_normal(5).astype(np.float32)
    y = x @ ((w.astype(np.float32) - 120) * scale) + bias
    node = helper.make_node("DynamicQuantizeMatMul", ["x", "w", "s", "z", "b"], ["y"], domain=_MICROSOFT)
    return _model([node], {"x": x}, y, w=w, s=np.asarray(scale), z=np.asarray(120, np.uint8), b=bias), x, y


def to_float(random: np.random.Generator) -> tuple[onnx.ModelProto, Array, Array]:
    """ONNX Runtime's MatMulIntegerToFloat behind DynamicQuantizeLinear."""
    x, w = random.standard_normal((3, 16)).astype(np.float32), _codes(random, 16, 5)
    scale = random.uniform(0.01, 0.02, 5).astype(np.float32)
    inputs = ["x_codes", "w", "x_scale", "s", "x_zero"]
    node = helper.make_node("MatMulIntegerToFloat", inputs, ["y"], domain=_MICROSOFT)
    y = x @ (w.astype(np.float32) * scale)
    return _model([_MEASURE, node], {"x": x}, y, w=w, s=scale), x, y


def dequantized(random: np.random.Generator) -> tuple[onnx.ModelProto, Array, Array]:
    """DequantizeLinear right behind DynamicQuantizeLinear."""
    x, w = (
        random.standard_normal((3, 16)).astype(np.float32),
        random.standard_normal((16, 5)).astype(np.float32),
    )
    back = helper.make_node("DequantizeLinear", ["x_codes", "x_scale", "x_zero"], ["back"])
    return (
        _model([_MEASURE, back, helper.make_node("MatMul", ["back", "w"], ["y"])], {"x": x}, x @ w, w=w),
        x,
        x @ w,
    )


def _sigmoid(values: Array) -> Array:
    return 1 / (1 + np.exp(-values))


def lstm(random: np.random.Generator) -> tuple[onnx.ModelProto, Array, Array]:
    """ONNX Runtime's DynamicQuantizeLSTM: weights [directions, inputs, 4 * hidden], gates i, o, f, c (LSTM-14)."""
    steps, width, hidden = 5, 6, 4
    x = random.standard_normal((steps, 1, width)).astype(np.float32)
    w, r = _codes(random, 1, width, 4 * hidden), _codes(random, 1, hidden, 4 * hidden)
    scales = np.full((1,), 0.01, np.float32), np.full((1,), 0.008, np.float32)
    zero = np.zeros((1,), np.int8)
    state = memory = np.zeros((1, hidden), np.float32)
    answers = []
    for step in range(steps):
        gates = x[step] @ (w[0] * scales[0][0]) + state @ (r[0] * scales[1][0])
        i, o, f, c = np.split(gates, 4, axis=1)
        memory = _sigmoid(f) * memory + _sigmoid(i) * np.tanh(c)
        state = _sigmoid(o) * np.tanh(memory)
        answers.append(state[None])
    y = np.stack(answers).astype(np.float32)
    inputs = ["x", "w", "r", "", "", "", "", "", "ws", "z", "rs", "z"]
    node = helper.make_node("DynamicQuantizeLSTM", inputs, ["y"], hidden_size=hidden, domain=_MICROSOFT)
    return _model([node], {"x": x}, y, w=w, r=r, ws=scales[0], rs=scales[1], z=zero), x, y


FORMS: dict[str, Build] = {
    each.__name__: each
    for each in (matmul, matmul_per_channel, convolution, biased, squares, fused, to_float, dequantized, lstm)
}
