"""Products of integer matrices, exact in int32: TFLite multiplies int8 by int8, or whole floats with constant ones."""

from __future__ import annotations

import numpy as np

from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.layout import broadcast_shape
from onnxport.converters.tflite.ops.matmul import fully_connected
from onnxport.converters.tflite.quantized.quantization import Quantization, QuantizedConstant
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value, constant, scalar
from onnxport.core.arrays import Array

_SIGN_BIT = 0x80
# float32 holds every integer up to here, and int8 every number up to there.
_EXACT, _LARGEST = 2**24, 128
_WHOLE = Quantization("int8", (1.0,), (0,))


@lower("MatMulInteger")
def matmul_integer(node: TflNode, tfl: TflBuilder) -> None:
    """(a - za) * (b - zb) in int32 (ONNX MatMulInteger-10).

    = a * b - za * columns(b - zb) - rows(a) * zb, where rows and columns are sums along the axis of the product.
    Only the first term is a product of matrices.
    """
    if min(node.input(0).rank, node.input(1).rank) < 2:
        node.unsupported("multiplies a vector; reshape it to a matrix")
    a, za = _as_int8(tfl, node.input(0), node.optional(2))
    b, zb = _as_int8(tfl, node.input(1), node.optional(3))
    za = _per_row(tfl, za)  # those of b's columns broadcast as they are
    result = tfl.value(_product(tfl, a, b))
    if not _is_zero(za):
        centred = tfl.convert(b, np.int32)
        if not _is_zero(zb):
            centred = _difference(tfl, centred, zb)
        result = tfl.broadcast("sub", result, tfl.broadcast("mul", za, _sum(tfl, centred, -2)))
    if not _is_zero(zb):
        rows = _sum(tfl, tfl.convert(a, np.int32), -1)
        result = tfl.broadcast("sub", result, tfl.broadcast("mul", rows, zb))
    node.emit(result)


def _as_int8(tfl: TflBuilder, value: Value, zero_point: Value | None) -> tuple[Value, Value]:
    """Return the matrix in int8 and its zero point in int32, both lowered by 128 for uint8."""
    zero = scalar(0, np.int32) if zero_point is None else tfl.convert(zero_point, np.int32)
    if value.dtype != np.uint8:
        return value, zero
    return _flip_sign(tfl, value), _difference(tfl, zero, scalar(128, np.int32))


def _flip_sign(tfl: TflBuilder, value: Value) -> Value:
    """Return x - 128 of uint8 as int8: the bits with the highest one flipped."""
    if value.constant is not None:
        return constant((value.constant ^ _SIGN_BIT).astype(np.uint8).view(np.int8))
    tensor, bit = tfl.tensor(value), tfl.constant(_SIGN_BIT, np.uint8)
    return tfl.value(tfl.bitcast(tfl.op("bitwise_xor", [tensor, bit], value.shape), np.int8))


def _product(tfl: TflBuilder, a: Value, b: Value) -> Tensor:
    """Return a * b of int8 in int32.

    Floats are as exact where no sum leaves what float32 holds, and XNNPACK multiplies them several times as fast as
    LiteRT multiplies integers. Else the compiler would turn products with constant matrices into fully connected
    layers, which have no such form. It leaves constants of three axes alone.
    """
    if a.constant is None and b.constant is not None and b.rank == 2 and _is_exact_in_floats(b.constant):
        weights = np.ascontiguousarray(b.constant.T)
        known = constant(weights.astype(np.float32), QuantizedConstant(weights, _WHOLE))
        return tfl.cast(fully_connected(tfl, tfl.tensor(tfl.convert(a, np.float32)), known, None), np.int32)
    rank = max(a.rank, b.rank)
    known = a if a.constant is not None else b
    shape = (*broadcast_shape(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    if known.constant is None or known.rank > 2:
        return _batch_matmul(tfl, tfl.tensor(a), b, shape)
    wide = constant(known.constant[None])
    a, b = (wide if each is known else each for each in (a, b))
    result = _batch_matmul(tfl, tfl.tensor(a), b, shape if rank > 2 else (1, *shape))
    return result if rank > 2 else tfl.without_unit_axis(result, 0)


def _is_exact_in_floats(columns: Array) -> bool:
    """Return whether the sums of products of int8 with these columns are exact in float32, in whatever order."""
    sums = np.abs(columns.astype(np.int32)).sum(axis=0)
    return bool(_LARGEST * sums.max(initial=0) <= _EXACT)


def _batch_matmul(tfl: TflBuilder, left: Tensor, b: Value, shape: tuple[int | None, ...]) -> Tensor:
    # Constants are transposed as the kernel reads them; it copies others.
    right = tfl.constant(b.constant.swapaxes(-1, -2)) if b.constant is not None else tfl.tensor(b)
    attributes = {"adj_x": False, "adj_y": b.constant is not None, "asymmetric_quantize_inputs": False}
    return tfl.op("batch_matmul", [left, right], shape, np.int32, **attributes)


def _sum(tfl: TflBuilder, value: Value, axis: int) -> Value:
    shape = list(value.shape)
    shape[axis] = 1
    if value.constant is not None:
        return constant(value.constant.sum(axis, dtype=np.int32, keepdims=True))
    axes = tfl.int32([value.rank + axis])
    return tfl.value(tfl.op("sum", [tfl.tensor(value), axes], shape, keep_dims=True))


def _difference(tfl: TflBuilder, a: Value, b: Value) -> Value:
    if a.constant is not None and b.constant is not None:
        return constant(np.asarray(a.constant - b.constant))
    return tfl.broadcast("sub", a, b)


def _per_row(tfl: TflBuilder, zero_point: Value) -> Value:
    """Turn a zero point for each row of a into a column; a matrix of them is one already."""
    if zero_point.rank != 1 or zero_point.shape == (1,):
        return zero_point
    if zero_point.constant is not None:
        return constant(zero_point.constant[:, None])
    return tfl.value(tfl.with_unit_axis(tfl.tensor(zero_point), 1))


def _is_zero(value: Value) -> bool:
    return value.constant is not None and not value.constant.any()
