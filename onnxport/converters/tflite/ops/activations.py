"""Activation functions that TFLite has as kernels, and those made from one of them."""

from __future__ import annotations

import numpy as np

from onnxport.converters.tflite.broadcasting import broadcast
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.elements import Elements, formula
from onnxport.converters.tflite.layout import permute
from onnxport.converters.tflite.ops.elementwise import unary
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.values import scalar


@lower("Relu")
def relu(node: TflNode, tfl: TflBuilder) -> None:
    """max(x, 0) (ONNX Relu-14), of integers too."""
    x = node.x
    if x.dtype.kind == "f":
        node.emit(unary(tfl, "relu", x))
    else:
        node.emit(broadcast(tfl, "maximum", x, scalar(0, x.dtype)))


@lower("LeakyRelu")
def leaky_relu(node: TflNode, tfl: TflBuilder) -> None:
    """y = x where x >= 0, alpha * x elsewhere (ONNX LeakyRelu-16)."""
    node.emit(unary(tfl, "leaky_relu", node.x, alpha=float(node.attribute("alpha", 0.01))))


@lower("PRelu")
def prelu(node: TflNode, tfl: TflBuilder) -> None:
    """y = x where x >= 0, slope * x elsewhere, slope broadcast to x one way (ONNX PRelu-16)."""
    x, slope = node.input(0), node.input(1)
    order = tfl.common_order(x)
    # TFLite's PRELU takes float32, one constant slope for the whole batch and at most four axes.
    takes_x = x.dtype == np.float32 and x.rank in (2, 3, 4) and order[0] == 0
    if slope.constant is None or not takes_x or (slope.rank == x.rank and slope.shape[0] != 1):
        negative = broadcast(tfl, "less", x, scalar(0, x.dtype))
        node.emit(broadcast(tfl, "select_v2", negative, broadcast(tfl, "mul", x, slope), x))
        return
    full = slope.constant.reshape((1,) * (x.rank - slope.rank) + slope.constant.shape)
    alpha = tfl.constant(np.transpose(full, order)[0])
    result = tfl.op("prelu", [tfl.tensor(x, order), alpha], permute(x.shape, order))
    node.emit(tfl.computed(result, order))


@lower("Elu")
def elu(node: TflNode, tfl: TflBuilder) -> None:
    """y = x where x >= 0, alpha * (exp(x) - 1) elsewhere (ONNX Elu-22); TFLite's ELU has alpha 1."""
    alpha = node.attribute("alpha", 1.0)
    if alpha == 1.0:
        node.emit(unary(tfl, "elu", node.x))
    else:
        formula(node, tfl, lambda x: x.maximum(0.0) + x.minimum(0.0).call("elu") * alpha)


@lower("Selu")
def selu(node: TflNode, tfl: TflBuilder) -> None:
    """y = gamma * Elu(x, alpha) (ONNX Selu-22)."""
    alpha, gamma = node.attribute("alpha", 1.6732632), node.attribute("gamma", 1.0507010)
    formula(node, tfl, lambda x: (x.maximum(0.0) + x.minimum(0.0).call("elu") * alpha) * gamma)


@lower("Gelu")
def gelu(node: TflNode, tfl: TflBuilder) -> None:
    """Gaussian error linear unit, exact or by its tanh approximation (ONNX Gelu-20)."""
    node.emit(unary(tfl, "gelu", node.x, approximate=node.attribute("approximate", "none") == "tanh"))


@lower("Reciprocal")
def reciprocal(node: TflNode, tfl: TflBuilder) -> None:
    node.emit(broadcast(tfl, "div", scalar(1, node.x.dtype), node.x))


@lower("HardSigmoid")
def hard_sigmoid(node: TflNode, tfl: TflBuilder) -> None:
    """y = max(0, min(1, alpha * x + beta)) (ONNX HardSigmoid-22)."""
    alpha, beta = node.attribute("alpha", 0.2), node.attribute("beta", 0.5)
    formula(node, tfl, lambda x: (x * alpha + beta).call("relu_0_to_1"))


@lower("Softplus")
def softplus(node: TflNode, tfl: TflBuilder) -> None:
    """y = log(1 + exp(x)) (ONNX Softplus-22), in a form that neither overflows nor cancels."""
    formula(node, tfl, lambda x: x.maximum(0.0) + (-x.call("abs")).call("exp").log1p_of_fraction())


@lower("Mish")
def mish(node: TflNode, tfl: TflBuilder) -> None:
    """y = x * tanh(log(1 + exp(x))) (ONNX Mish-22): the tanh of a logarithm is a quotient, n / (n + 2)."""

    def body(x: Elements) -> Elements:
        e = x.minimum(20.0).call("exp")  # from 20 on the quotient is 1 in float32
        n = e * (e + 2.0)
        return x * (n / (n + 2.0))

    formula(node, tfl, body)
