"""Matrix products. A constant right-hand side becomes the transposed weights of a linear layer."""

from __future__ import annotations

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.values import Value
from onnxport.converters.lowering import NodeView
from onnxport.converters.semantics import gemm_bias

_LINEAR_RANK = 3  # the most axes that MIL's linear takes


@lower("MatMul")
def matmul(node: NodeView[Value], mil: MilBuilder) -> None:
    """NumPy's matmul (ONNX MatMul-13)."""
    node.emit(product(mil, node.input(0), node.input(1)))


def product(mil: MilBuilder, a: Value, b: Value) -> Value:
    """The matrix product of two values, as NumPy's matmul."""
    if b.constant is not None and b.rank == 2 and 2 <= a.rank <= _LINEAR_RANK and a.constant is None:
        weights = b.turned()
        return mil.linear(x=a, weight=weights, bias=_no_bias(mil, weights))
    if a.rank > 1 and b.rank > 1:
        return mil.matmul(x=a, y=b)
    # A 1-D operand counts as a row on the left, as a column on the right; its axis leaves the result.
    left = a if a.rank > 1 else mil.expand_dims(x=a, axes=[0])
    right = b if b.rank > 1 else mil.expand_dims(x=b, axes=[1])
    result = mil.matmul(x=left, y=right)
    axes = ([result.rank - 2] if a.rank == 1 else []) + ([result.rank - 1] if b.rank == 1 else [])
    return mil.squeeze(x=result, axes=axes)


def _no_bias(mil: MilBuilder, weights: Value) -> Value:
    """Zeros in the weights' type: the builder's default for integers is floats."""
    return mil.constant(np.zeros(weights.shape[0] or 0, weights.dtype))


@lower("Gemm")
def gemm(node: NodeView[Value], mil: MilBuilder) -> None:
    """alpha * A' * B' + beta * C (ONNX Gemm-13)."""
    a, b, c = node.input(0), node.input(1), node.optional(2)
    alpha, beta = float(node.attribute("alpha", 1.0)), float(node.attribute("beta", 1.0))
    transposes_a, transposes_b = bool(node.attribute("transA", 0)), bool(node.attribute("transB", 0))
    if a.is_integer:
        node.unsupported(f"multiplies matrices of {a.dtype}; convert them to float32 first")
    if beta == 0:
        c = None
    if b.constant is not None and a.constant is None:
        weights = _scale(mil, b if transposes_b else b.turned(), alpha)
        left = mil.transpose(x=a, perm=[1, 0]) if transposes_a else a
        bias = gemm_bias(c, beta, weights.shape[0] or 0)
        offsets = _no_bias(mil, weights) if bias is None else mil.constant(bias)
        result = mil.linear(x=left, weight=weights, bias=offsets)
    else:
        bias = None
        result = mil.matmul(x=a, y=b, transpose_x=transposes_a, transpose_y=transposes_b)
        result = _scale(mil, result, alpha)
    if c is not None and bias is None:
        result = mil.add(x=result, y=_scale(mil, c, beta))
    node.emit(result)


def _scale(mil: MilBuilder, value: Value, factor: float) -> Value:
    if factor == 1:
        return value
    if value.constant is not None:
        return mil.constant(value.constant * value.dtype.type(factor))
    return mil.mul(x=value, y=factor)
