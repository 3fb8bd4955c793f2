"""Fusions of ONNX Runtime's optimizer: a convolution or product with its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxport.optimizers.rewrites.registry import CONV, Rewrite, rewrites

# Activation behind a fused op -> the names of its parameters in the node's order; Clip's are operands.
_ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Clip": ("min", "max"),
}


def _activate(node: Rewrite, x: ir.Value, parameters: Sequence[float]) -> ir.Value:
    name = node.attribute("activation", "")
    if not name:
        return x
    names = _ACTIVATIONS.get(name)
    if names is None or len(parameters) != len(names):
        node.unsupported(f"fused with the activation {name} of {len(parameters)} parameters")
    if name == "Clip":
        return node.op("Clip", x, *(np.asarray(each, node.dtype(node.input(0))) for each in parameters))
    attributes: dict[str, Any] = dict(zip(names, parameters, strict=True))
    result: ir.Value = node.op(name, x, **attributes)
    return result


@rewrites("com.microsoft::FusedConv")
def fused_conv(node: Rewrite) -> None:
    """Compute the activation of Conv(x, w, b) + z."""
    x, w, bias = node.input(0), node.input(1), node.optional(2)
    result = node.op("Conv", x, w, bias, **node.attributes(*CONV))
    if node.has_input(3):
        result = node.op("Add", result, node.input(3))
    node.emit(_activate(node, result, node.attribute("activation_params", ())))


@rewrites("com.microsoft::FusedGemm")
def fused_gemm(node: Rewrite) -> None:
    """Compute the activation of Gemm(a, b, c)."""
    a, b, c = node.input(0), node.input(1), node.optional(2)
    result = node.op("Gemm", a, b, c, **node.attributes("alpha", "beta", "transA", "transB"))
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
    value = node.input(index)
    batch, last = node.attribute(f"transBatch{side}", 0), node.attribute(f"trans{side}", 0)
    rank = len(node.shape(value))
    if rank < 2 or not (batch or last):  # a vector has nothing to transpose
        return value
    axes = list(range(rank))
    if batch and rank > 2:
        axes = [*axes[1:-1], 0, axes[-1]]
    if last:
        axes[-2:] = axes[:-3:-1]
    return node.op("Transpose", value, perm=axes)
