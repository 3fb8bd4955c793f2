"""Matrix products. A constant right-hand side becomes a fully connected layer with its weights transposed."""

from __future__ import annotations

import numpy as np

from onnxport.converters.tflite.builder import Array, Tensor, TflBuilder, TflNode, Value
from onnxport.converters.tflite.layout import identity
from onnxport.converters.tflite.ops.elementwise import broadcast_shape
from onnxport.converters.tflite.registry import lower


def fully_connected(tfl: TflBuilder, tensor: Tensor, weights: Array, bias: Array | None) -> Tensor:
    """tensor [..., K] times weights [O, K] transposed, plus bias [O]."""
    *leading, _ = tfl.shape_of(tensor)
    return tfl.op(
        "fully_connected",
        [tensor, tfl.constant(weights), tfl.no_value() if bias is None else tfl.constant(bias)],
        (*leading, weights.shape[0]),
        np.float32,
        fused_activation_function="NONE",
        keep_num_dims=len(leading) > 1,
        weights_format="DEFAULT",
    )


def _features(tfl: TflBuilder, value: Value, weights: Array) -> tuple[Tensor, Array]:
    """The left operand and the weights [O, K], their columns permuted when the operand came scrambled."""
    if value.scrambled is not None and not value.copies:
        return value.scrambled.tensor, weights[:, value.scrambled.index]
    return tfl.tensor(value), weights


@lower("Gemm")
def gemm(node: TflNode, tfl: TflBuilder) -> None:
    """alpha * A' * B' + beta * C (ONNX Gemm-13)."""
    a, b, c = node.input(0), node.input(1), node.optional(2)
    alpha, beta = np.float32(node.attribute("alpha", 1.0)), np.float32(node.attribute("beta", 1.0))
    transposes_a, transposes_b = node.attribute("transA", 0), node.attribute("transB", 0)
    if b.constant is None:
        product = batch_matmul(tfl, a, b, adjoint_a=bool(transposes_a), adjoint_b=bool(transposes_b))
        if alpha != 1:
            product = tfl.binary("mul", product, tfl.constant(alpha), tfl.shape_of(product))
        node.emit(_plus(tfl, product, c, beta))
        return
    weights = (b.constant if transposes_b else b.constant.T) * alpha
    if transposes_a:
        tensor = tfl.tensor(a, (1, 0))
    else:
        tensor, weights = _features(tfl, a, weights)
    bias = _bias(c, beta, weights.shape[0])
    product = fully_connected(tfl, tensor, weights, bias)
    node.emit(_plus(tfl, product, None if bias is not None else c, beta))


def _bias(c: Value | None, beta: np.float32, channels: int) -> Array | None:
    """C as a bias [channels], if it is constant and the same for every row."""
    if c is None or c.constant is None or c.constant.size not in (1, channels):
        return None
    if c.rank == 2 and c.shape[0] != 1:
        return None
    flat = c.constant.reshape(-1).astype(np.float32) * beta
    return np.broadcast_to(flat, (channels,))


def _plus(tfl: TflBuilder, product: Tensor, c: Value | None, beta: np.float32) -> Value:
    if c is not None:
        addend = tfl.aligned(c, identity(2))
        if beta != 1:
            addend = tfl.binary("mul", addend, tfl.constant(beta), tfl.shape_of(addend))
        product = tfl.binary("add", product, addend, tfl.shape_of(product))
    return tfl.computed(product, np.float32)


@lower("MatMul")
def matmul(node: TflNode, tfl: TflBuilder) -> None:
    """NumPy's matmul (ONNX MatMul-13)."""
    a, b = node.input(0), node.input(1)
    if b.constant is not None and b.rank == 2 and a.rank >= 2 and a.constant is None:
        tensor, weights = _features(tfl, a, b.constant.T)
        node.emit(tfl.computed(fully_connected(tfl, tensor, weights, None), np.float32))
        return
    if a.rank < 2 or b.rank < 2:
        node.emit(_with_vectors(tfl, a, b))
        return
    node.emit(tfl.computed(batch_matmul(tfl, a, b), a.dtype))


def _with_vectors(tfl: TflBuilder, a: Value, b: Value) -> Value:
    """A 1-D operand counts as a row on the left, as a column on the right; its axis leaves the result."""
    left = a if a.rank > 1 else tfl.computed(tfl.with_unit_axis(tfl.tensor(a), 0), a.dtype)
    right = b if b.rank > 1 else tfl.computed(tfl.with_unit_axis(tfl.tensor(b), 1), b.dtype)
    result = batch_matmul(tfl, left, right)
    if b.rank == 1:
        result = tfl.without_unit_axis(result, len(tfl.shape_of(result)) - 1)
    if a.rank == 1:
        rank = len(tfl.shape_of(result))
        result = tfl.without_unit_axis(result, rank - 1 if b.rank == 1 else rank - 2)
    return tfl.computed(result, a.dtype)


def batch_matmul(
    tfl: TflBuilder, a: Value, b: Value, *, adjoint_a: bool = False, adjoint_b: bool = False
) -> Tensor:
    """The product over the last two axes, leading ones broadcast; a transpose of an operand is an attribute."""
    left, flipped_a = _operand(tfl, a)
    right, flipped_b = _operand(tfl, b)
    rows = a.shape[-1] if adjoint_a else a.shape[-2]
    columns = b.shape[-2] if adjoint_b else b.shape[-1]
    shape = (*broadcast_shape(a.shape[:-2], b.shape[:-2]), rows, columns)
    return tfl.op(
        "batch_matmul",
        [left, right],
        shape,
        a.dtype,
        adj_x=flipped_a != adjoint_a,
        adj_y=flipped_b != adjoint_b,
        asymmetric_quantize_inputs=False,
    )


def _operand(tfl: TflBuilder, value: Value) -> tuple[Tensor, bool]:
    """The operand, and whether its last two axes lie swapped: then no transpose is needed."""
    *leading, rows, columns = identity(value.rank)
    swapped = (*leading, columns, rows)
    if value.constant is None and swapped in value.copies and identity(value.rank) not in value.copies:
        return value.copies[swapped], True
    return tfl.tensor(value), False
