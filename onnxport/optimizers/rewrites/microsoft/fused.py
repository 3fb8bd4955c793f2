"""Fusions of ONNX Runtime's optimizer: a convolution or product with its neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from onnxport.optimizers.rewrites.registry import Rewrite, rewrites

_CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_GEMM = ("alpha", "beta", "transA", "transB")

Activation = Callable[[Rewrite, ir.Value, Sequence[float]], ir.Value]


def _clip(node: Rewrite, x: ir.Value, parameters: Sequence[float]) -> ir.Value:
    low, high = (np.asarray(each, node.dtype(node.input(0))) for each in parameters)
    return node.op("Clip", x, low, high)


# Activation behind a fused op -> its nodes; parameters in the node's order.
_ACTIVATIONS: dict[str, Activation] = {
    "Relu": lambda node, x, _: node.op("Relu", x),
    "Sigmoid": lambda node, x, _: node.op("Sigmoid", x),
    "Tanh": lambda node, x, _: node.op("Tanh", x),
    "LeakyRelu": lambda node, x, given: node.op("LeakyRelu", x, alpha=given[0]),
    "HardSigmoid": lambda node, x, given: node.op("HardSigmoid", x, alpha=given[0], beta=given[1]),
    "Clip": _clip,
}
_PARAMETERS = {"LeakyRelu": 1, "HardSigmoid": 2, "Clip": 2}


def _activate(node: Rewrite, x: ir.Value, parameters: Sequence[float]) -> ir.Value:
    name = node.attribute("activation", "")
    if not name:
        return x
    if name not in _ACTIVATIONS or len(parameters) != _PARAMETERS.get(name, 0):
        node.unsupported(f"fused with the activation {name} of {len(parameters)} parameters")
    return _ACTIVATIONS[name](node, x, parameters)


@rewrites("com.microsoft::FusedConv")
def fused_conv(node: Rewrite) -> None:
    """Compute the activation of Conv(x, w, b) + z."""
    attributes = {name: node.attribute(name) for name in _CONV}
    result = node.op("Conv", node.input(0), node.input(1), node.optional(2), **attributes)
    if node.has_input(3):
        result = node.op("Add", result, node.input(3))
    node.emit(_activate(node, result, node.attribute("activation_params", ())))


@rewrites("com.microsoft::FusedGemm")
def fused_gemm(node: Rewrite) -> None:
    """Compute the activation of Gemm(a, b, c)."""
    attributes = {name: node.attribute(name) for name in _GEMM}
    result = node.op("Gemm", node.input(0), node.input(1), node.optional(2), **attributes)
    given = [node.attribute(f"activation_{name}") for name in ("alpha", "beta", "gamma")]
    node.emit(_activate(node, result, [each for each in given if each is not None]))


@rewrites("com.microsoft::FusedMatMul", "com.microsoft::TransposeMatMul")
def fused_matmul(node: Rewrite) -> None:
    """Compute alpha * A' * B' with optional transpositions."""
    a, b = (_transpose(node, index, side) for index, side in enumerate("AB"))
    result = node.op("MatMul", a, b)
    alpha = node.attribute("alpha", 1.0)
    if alpha != 1:
        result = node.op("Mul", result, np.asarray(alpha, node.dtype(node.input(0))))
    node.emit(result)


def _transpose(node: Rewrite, index: int, side: str) -> ir.Value:
    """Move the first axis before the last (transBatch) and swap the last two (trans)."""
    value, batch, last = (
        node.input(index),
        node.attribute(f"transBatch{side}", 0),
        node.attribute(f"trans{side}", 0),
    )
    rank = len(node.shape(value))
    if rank < 2 or not (batch or last):  # a vector has nothing to transpose
        return value
    axes = list(range(rank))
    if batch and rank > 2:
        axes = [*axes[1:-1], 0, axes[-1]]
    if last:
        axes[-2:] = axes[:-3:-1]
    return node.op("Transpose", value, perm=axes)
