"""Matrix products and Einsum. A constant right-hand side becomes the transposed weights of a linear layer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder, MilNode
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.shapes.dims import Size, product, reshape, size_of
from onnxport.converters.coreml.values import Value
from onnxport.converters.einsum import Einsum
from onnxport.converters.semantics import gemm_bias
from onnxport.core.arrays import Array

_LINEAR_RANK = 3  # the most axes that MIL's linear takes


@lower("MatMul")
def matmul(node: MilNode, mil: MilBuilder) -> None:
    """NumPy's matmul (ONNX MatMul-13)."""
    a, b = node.input(0), node.input(1)
    if b.constant is not None and b.rank == 2 and 2 <= a.rank <= _LINEAR_RANK and a.constant is None:
        weights = b.swap_axes()
        node.emit(mil.linear(x=a, weight=weights, bias=_no_bias(mil, weights)))
        return
    if a.rank > 1 and b.rank > 1:
        node.emit(mil.matmul(x=a, y=b))
        return
    # A 1-D operand counts as a row on the left, as a column on the right; its axis leaves the result.
    left = a if a.rank > 1 else mil.expand_dims(x=a, axes=[0])
    right = b if b.rank > 1 else mil.expand_dims(x=b, axes=[1])
    result = mil.matmul(x=left, y=right)
    axes = ([result.rank - 2] if a.rank == 1 else []) + ([result.rank - 1] if b.rank == 1 else [])
    node.emit(mil.squeeze(x=result, axes=axes))


def _no_bias(mil: MilBuilder, weights: Value) -> Value:
    """Return zeros in the weights' type: the builder's default for integers is floats."""
    return mil.constant(np.zeros(weights.shape[0] or 0, weights.dtype))


@lower("Gemm")
def gemm(node: MilNode, mil: MilBuilder) -> None:
    """alpha * A' * B' + beta * C (ONNX Gemm-13)."""
    a, b, c = node.input(0), node.input(1), node.optional(2)
    alpha, beta = float(node.attribute("alpha", 1.0)), float(node.attribute("beta", 1.0))
    transposes_a, transposes_b = bool(node.attribute("transA", 0)), bool(node.attribute("transB", 0))
    if a.is_integer:
        node.unsupported(f"multiplies matrices of {a.dtype}; convert them to float32 first")
    if beta == 0:
        c = None
    if b.constant is not None and a.constant is None:
        weights = _scale(mil, b if transposes_b else b.swap_axes(), alpha)
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


@lower("Einsum")
def einsum(node: MilNode, mil: MilBuilder) -> None:
    lowering = _Einsum(node, mil)
    value = lowering.run()
    node.emit(mil.identity(x=value) if any(value is each for each in lowering.values) else value)


class _Einsum(Einsum[Value, Size]):
    def __init__(self, node: MilNode, mil: MilBuilder) -> None:
        self.mil = mil
        super().__init__(node)

    def size(self, value: Value, axis: int) -> Size:
        return size_of(self.mil, value, axis)

    def transpose(self, value: Value, perm: Sequence[int]) -> Value:
        return self.mil.transpose(x=value, perm=list(perm))

    def squeeze(self, value: Value, axes: Sequence[int]) -> Value:
        return self.mil.squeeze(x=value, axes=list(axes))

    def sum(self, value: Value, axes: Sequence[int]) -> Value:
        return self.mil.reduce_sum(x=value, axes=list(axes), keep_dims=False)

    def reshape(self, value: Value, sizes: Sequence[Size]) -> Value:
        return reshape(self.mil, value, sizes)

    def gather(self, value: Value, indices: Array, axis: int) -> Value:
        return self.mil.gather(x=value, indices=indices.astype(np.int32), axis=axis)

    def matrix(
        self, value: Value, batch: Sequence[Size], rows: Sequence[Size], columns: Sequence[Size]
    ) -> Value:
        return self.reshape(value, [product(self.mil, each) for each in (batch, rows, columns)])

    def multiply(self, left: Value, right: Value, *, is_outer: bool) -> Value:
        return self.mil.mul(x=left, y=right) if is_outer else self.mil.matmul(x=left, y=right)
