"""Matrix products and Einsum. A constant right-hand side becomes the weights of a fully connected layer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxport.converters.einsum import Einsum, Term
from onnxport.converters.semantics import gemm_bias
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.layout import broadcast_shape, identity, product
from onnxport.converters.tflite.ops.reduction import reduce_axes
from onnxport.converters.tflite.ops.reshape import reshape, transpose
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value, constant
from onnxport.core.arrays import Array

_MAX_RANK = 5  # of BATCH_MATMUL (kernels/batch_matmul.cc)


def fully_connected(tfl: TflBuilder, tensor: Tensor, weights: Value, bias: Array | None) -> Tensor:
    """Return tensor [..., K] times constant weights [O, K] transposed, plus bias [O]."""
    *leading, _ = tfl.shape_of(tensor)
    return tfl.op(
        "fully_connected",
        [tensor, tfl.tensor(weights), tfl.no_value() if bias is None else tfl.constant(bias)],
        (*leading, weights.shape[0]),
        keep_num_dims=len(leading) > 1,
        weights_format="DEFAULT",
    )


def _weights(b: Value, *, transposed: bool, factor: float = 1.0) -> Value:
    """Return constant B, [K, O] or transposed [O, K], as weights [O, K]; a quantized one keeps its integers."""
    assert b.constant is not None
    array = b.constant if transposed else b.constant.T
    if factor != 1:
        array = array * np.float32(factor)
    quantized = b.quantized if transposed or b.quantized is None else b.quantized.transpose((1, 0))
    keeps = factor == 1 and quantized is not None and quantized.is_weights
    keeps = keeps and quantized.grid.axis in (None, 0)  # type: ignore[union-attr]
    return constant(array, quantized if keeps else None)


def _features(tfl: TflBuilder, value: Value, weights: Value) -> tuple[Tensor, Value]:
    """Return the left operand and the weights [O, K]; a scrambled operand permutes their columns."""
    if value.scrambled is not None and not value.copies and weights.constant is not None:
        columns, stored = value.scrambled.index, weights.quantized
        if stored is not None:
            stored = stored._replace(numbers=stored.numbers[:, columns])
        return value.scrambled.tensor, constant(weights.constant[:, columns], stored)
    return tfl.tensor(value), weights


@lower("Gemm")
def gemm(node: TflNode, tfl: TflBuilder) -> None:
    """alpha * A' * B' + beta * C (ONNX Gemm-13), in float32."""
    dtype = node.x.dtype
    if dtype.kind != "f":
        node.unsupported(f"matrices of {dtype}; TFLite multiplies float matrices only")
    a, b = (tfl.float32(node.input(i)) for i in (0, 1))
    c = tfl.float32(node.input(2)) if node.has_input(2) else None
    alpha, beta = np.float32(node.attribute("alpha", 1.0)), np.float32(node.attribute("beta", 1.0))
    transposes_a, transposes_b = bool(node.attribute("transA", 0)), bool(node.attribute("transB", 0))
    if b.constant is None:
        bias = None
        result = batch_matmul(tfl, a, b, adjoint_a=transposes_a, adjoint_b=transposes_b)
        result = _scale(tfl, result, alpha)
    else:
        weights = _weights(b, transposed=transposes_b, factor=float(alpha))
        if transposes_a:
            tensor = tfl.tensor(a, (1, 0))
        else:
            tensor, weights = _features(tfl, a, weights)
        bias = gemm_bias(c, float(beta), weights.shape[0] or 0)
        result = fully_connected(tfl, tensor, weights, bias)
    if c is not None and bias is None:
        addend = _scale(tfl, tfl.operand(c, identity(2)), beta)
        result = tfl.op("add", [result, addend], tfl.shape_of(result))
    node.emit(tfl.value(tfl.cast(result, dtype)))


def _scale(tfl: TflBuilder, tensor: Tensor, factor: np.float32) -> Tensor:
    if factor == 1:
        return tensor
    return tfl.op("mul", [tensor, tfl.constant(factor)], tfl.shape_of(tensor))


@lower("MatMul")
def lower_matmul(node: TflNode, tfl: TflBuilder) -> None:
    """NumPy's matmul (ONNX MatMul-13)."""
    node.emit(matmul(tfl, node.input(0), node.input(1)))


def matmul(tfl: TflBuilder, a: Value, b: Value) -> Value:
    """Multiply matrices as NumPy's matmul does."""
    if b.constant is not None and b.rank == 2 and a.rank >= 2 and a.constant is None:
        tensor, weights = _features(tfl, a, _weights(b, transposed=False))
        return tfl.value(fully_connected(tfl, tensor, weights, None))
    if a.rank < 2 or b.rank < 2:
        return _vector_product(tfl, a, b)
    return tfl.value(batch_matmul(tfl, a, b))


def _vector_product(tfl: TflBuilder, a: Value, b: Value) -> Value:
    """Multiply with a 1-D operand as a row on the left, as a column on the right; its axis leaves the result."""
    left = a if a.rank > 1 else tfl.value(tfl.with_unit_axis(tfl.tensor(a), 0))
    right = b if b.rank > 1 else tfl.value(tfl.with_unit_axis(tfl.tensor(b), 1))
    result = batch_matmul(tfl, left, right)
    if b.rank == 1:
        result = tfl.without_unit_axis(result, len(tfl.shape_of(result)) - 1)
    if a.rank == 1:
        rank = len(tfl.shape_of(result))
        result = tfl.without_unit_axis(result, rank - 1 if b.rank == 1 else rank - 2)
    return tfl.value(result)


def batch_matmul(
    tfl: TflBuilder, a: Value, b: Value, *, adjoint_a: bool = False, adjoint_b: bool = False
) -> Tensor:
    """Multiply over the last two axes, the leading ones broadcast; operands may be transposed for free."""
    left, flipped_a = _operand(tfl, a)
    right, flipped_b = _operand(tfl, b)
    rows = a.shape[-1] if adjoint_a else a.shape[-2]
    columns = b.shape[-2] if adjoint_b else b.shape[-1]
    shape = (*broadcast_shape(a.shape[:-2], b.shape[:-2]), rows, columns)
    result = shape
    if len(shape) > _MAX_RANK and a.shape[:-2] == b.shape[:-2] and None not in shape:
        batches = product(shape[:-2])
        left, right = (tfl.reshape(each, (batches, *tfl.shape_of(each)[-2:])) for each in (left, right))
        result = (batches, rows, columns)
    outcome = tfl.op(
        "batch_matmul",
        [left, right],
        result,
        adj_x=flipped_a != adjoint_a,
        adj_y=flipped_b != adjoint_b,
        asymmetric_quantize_inputs=False,
    )
    return outcome if result == shape else tfl.reshape(outcome, shape)


def _operand(tfl: TflBuilder, value: Value) -> tuple[Tensor, bool]:
    """Return the operand, and whether its last two axes are swapped, so that it needs no transpose."""
    *leading, rows, columns = identity(value.rank)
    swapped = (*leading, columns, rows)
    if value.constant is None and swapped in value.copies and identity(value.rank) not in value.copies:
        return value.copies[swapped], True
    return tfl.tensor(value), False


@lower("Einsum")
def einsum(node: TflNode, tfl: TflBuilder) -> None:
    node.emit(_Einsum(node, tfl).run())


class _Einsum(Einsum[Value, int | None]):
    def __init__(self, node: TflNode, tfl: TflBuilder) -> None:
        self.tfl = tfl
        super().__init__(node)

    def size(self, value: Value, axis: int) -> int | None:
        return value.shape[axis]

    def length(self, term: Term[Value], letter: str) -> int | None:
        return term.value.shape[term.letters.index(letter)]

    def transpose(self, value: Value, perm: Sequence[int]) -> Value:
        return transpose(self.tfl, value, tuple(perm))

    def squeeze(self, value: Value, axes: Sequence[int]) -> Value:
        return self.reshape(value, [size for axis, size in enumerate(value.shape) if axis not in axes])

    def sum(self, value: Value, axes: Sequence[int]) -> Value:
        return reduce_axes(self.tfl, "sum", value, list(axes), keep=False)

    def reshape(self, value: Value, sizes: Sequence[int | None]) -> Value:
        if value.shape == tuple(sizes):
            return value
        if sizes.count(None) > 1:
            self.node.unsupported(
                "several open dimensions in one product; fix the input's size with --shape NAME=..."
            )
        return reshape(self.tfl, value, tuple(sizes))

    def gather(self, value: Value, indices: Array, axis: int) -> Value:
        places = self.tfl.int32(indices)
        shape = (*value.shape[:axis], len(indices), *value.shape[axis + 1 :])
        return self.tfl.value(self.tfl.gather(self.tfl.tensor(value), places, axis, shape))

    def matrix(
        self,
        value: Value,
        batch: Sequence[int | None],
        rows: Sequence[int | None],
        columns: Sequence[int | None],
    ) -> Value:
        return self.reshape(value, [*batch, product(rows), product(columns)])

    def multiply(self, left: Value, right: Value, *, is_outer: bool) -> Value:
        return matmul(self.tfl, left, right)
