"""Operators on quantized integers, in exact float arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from onnxport.optimizers.rewrites.registry import CONV, Rewrite, rewrites

# float32 holds every integer up to here.
_EXACT = 2**24
# The widest difference of an 8 bit number and a zero point.
_LARGEST = 255


@rewrites("DynamicQuantizeLinear")
def dynamic_quantize_linear(node: Rewrite) -> None:
    """Quantize to uint8 over the range of x and 0 (ONNX DynamicQuantizeLinear-11).

    For x = 0 ONNX's definition divides by zero; ONNX Runtime uses scale 1.
    """
    node.is_exact = True  # the scale and the zero point are of the range as it is
    x, zero = node.input(0), np.float32(0)
    low = node.op("Min", node.op("ReduceMin", x, keepdims=0), zero)
    high = node.op("Max", node.op("ReduceMax", x, keepdims=0), zero)
    scale = node.op("Div", node.op("Sub", high, low), np.float32(255))
    scale = node.op("Where", node.op("Equal", scale, zero), np.float32(1), scale)
    offset = node.op("Clip", node.op("Neg", node.op("Div", low, scale)), zero, np.float32(255))
    zero_point = node.op("Cast", node.op("Round", offset), to=ir.DataType.UINT8)
    node.emit(node.op("QuantizeLinear", x, scale, zero_point), 0)
    node.emit(scale, 1)
    node.emit(zero_point, 2)


@rewrites("ConvInteger")
def conv_integer(node: Rewrite) -> None:
    """Convolve (x - zero point) with (w - zero point) in int32 (ONNX ConvInteger-10).

    A float convolution is exact while no sum exceeds 2^24. Otherwise x is split into pieces of fewer bits, and the
    results are added as integers.
    """
    node.is_exact = True
    x = _subtract_zero_point(node, 0, 2)
    w, bits = _weights(node)
    attributes = node.attributes(*CONV)
    node.emit(_sum_pieces(node, x, bits, lambda piece: node.op("Conv", piece, w, **attributes)))


@rewrites("MatMulInteger")
def matmul_integer(node: Rewrite) -> None:
    """Multiply (a - zero point) by (b - zero point) in int32 (ONNX MatMulInteger-10), as ConvInteger."""
    node.is_exact = True
    if min(len(node.shape(node.input(index))) for index in (0, 1)) < 2:
        node.unsupported("multiplies a vector; reshape it to a matrix")
    a, (b, bits) = _subtract_zero_point(node, 0, 2, column=True), _matrix(node)
    node.emit(_sum_pieces(node, a, bits, lambda piece: node.op("MatMul", piece, b)))


def _sum_pieces(node: Rewrite, x: ir.Value, bits: int, product: Callable[[ir.Value], ir.Value]) -> ir.Value:
    """Return the product with x in int32, piece by piece."""
    results: list[ir.Value] = []
    for piece, weight in _pieces(node, x, bits):
        result = node.op("Cast", product(piece), to=ir.DataType.INT32)
        result = node.op("Mul", result, np.int32(weight)) if weight > 1 else result
        results = [node.op("Add", *results, result) if results else result]
    return results[0]


def _subtract_zero_point(node: Rewrite, index: int, zero_point: int, *, column: bool = False) -> ir.Value:
    """Subtract an operand's zero point; with one zero point per row it is a `column`."""
    value: ir.Value = node.op("Cast", node.input(index), to=ir.DataType.FLOAT)
    if not node.has_input(zero_point):
        return value
    points = node.op("Cast", node.input(zero_point), to=ir.DataType.FLOAT)
    shape = node.shape(node.input(zero_point))
    if column and len(shape) == 1 and shape != (1,):
        points = node.op("Unsqueeze", points, np.array([1]))
    return node.op("Sub", value, points)


def _matrix(node: Rewrite) -> tuple[ir.Value | np.ndarray, int]:
    """Return the second matrix minus zero points in float32, and the most bits of a factor for an exact product."""
    known = _known_operand(node)
    if known is not None:
        matrix, points = known
        matrix = matrix if points is None else matrix - points
        return matrix, _bits(node, float(np.abs(matrix).sum(axis=-2).max(initial=1)))
    size = node.shape(node.input(1))[-2]
    if size is None:
        node.unsupported("sums along an axis of open size; fix it with --shape NAME=...")
    return _subtract_zero_point(node, 1, 3), _bits(node, float(_LARGEST * size))


def _known_operand(node: Rewrite) -> tuple[np.ndarray, np.ndarray | None] | None:
    """Return the second operand and its zero points in float32; None if one is computed."""
    value, zero_point = node.input(1), node.optional(3)
    if value.const_value is None or (zero_point is not None and zero_point.const_value is None):
        return None
    points = None if zero_point is None else zero_point.const_value
    return value.const_value.numpy().astype(np.float32), None if points is None else points.numpy().astype(
        np.float32
    )


def _weights(node: Rewrite) -> tuple[ir.Value | np.ndarray, int]:
    """Return the weights minus zero points in float32, and the most bits of x for an exact product."""
    known, sizes = _known_operand(node), node.shape(node.input(1))
    along = [-1, *[1] * (len(sizes) - 1)]
    if known is not None:
        weights, points = known
        weights = weights if points is None else weights - points.reshape(along)
        largest = np.abs(weights).reshape(len(weights), -1).sum(axis=1).max(initial=1)
        return weights, _bits(node, float(largest))
    if None in sizes[1:]:
        node.unsupported("its weights have an open size; fix it with --shape NAME=...")
    computed = node.op("Cast", node.input(1), to=ir.DataType.FLOAT)
    if node.has_input(3):
        shift = node.op("Cast", node.input(3), to=ir.DataType.FLOAT)
        if node.shape(node.input(3)) not in ((), (1,)):
            shift = node.op("Reshape", shift, np.array(along))
        computed = node.op("Sub", computed, shift)
    return computed, _bits(node, float(_LARGEST * math.prod(size or 0 for size in sizes[1:])))


def _bits(node: Rewrite, largest: float) -> int:
    """Return the most bits of a number whose product with `largest` is exact in float32."""
    if largest * _LARGEST <= _EXACT:
        return 8
    bits = int(math.log2(_EXACT / largest))
    if bits < 1:
        node.unsupported(f"sums up to {largest:.0f}, for which float32 is not exact")
    return bits


def _pieces(node: Rewrite, x: ir.Value, bits: int) -> list[tuple[ir.Value, int]]:
    """Split x into pieces of at most `bits` bits, each with the power of two that it counts for."""
    if bits >= 8:
        return [(x, 1)]
    pieces, weight, rest = [], 1, x
    while _LARGEST // weight >= 2**bits:
        higher = node.op("Floor", node.op("Mul", rest, np.float32(0.5**bits)))
        pieces.append((node.op("Sub", rest, node.op("Mul", higher, np.float32(2**bits))), weight))
        rest, weight = higher, weight * 2**bits
    return [*pieces, (rest, weight)]
