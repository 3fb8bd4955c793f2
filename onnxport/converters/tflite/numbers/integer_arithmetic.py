"""Integer arithmetic without TFLite kernels: 64-bit division, bitwise logic, shifts, powers.

Everything wraps around as the type does, and operands broadcast.
"""

from __future__ import annotations

import numpy as np

from onnxport.converters.tflite.builder import TflBuilder
from onnxport.converters.tflite.layout import identity
from onnxport.converters.tflite.values import Value, constant, scalar
from onnxport.core.arrays import Array

# ---- division


def divide(tfl: TflBuilder, a: Value, b: Value) -> Value:
    """Return a / b, truncated toward zero: float32 estimates the quotient, integers correct it."""
    if a.dtype == np.uint64:
        return _unsigned_quotient(tfl, a, b)
    if a.dtype != np.int64:
        return tfl.convert(divide(tfl, tfl.convert(a, np.int64), tfl.convert(b, np.int64)), a.dtype)
    op = tfl.broadcast
    divisor = tfl.convert(b, np.float32)
    first = _round(tfl, op("div", tfl.convert(a, np.float32), divisor), np.int64)
    quotient, rest = _refine(tfl, a, b, divisor, first)
    # Nearest is one too far from zero where the rest and the dividend differ in sign.
    negative = op("less", a, 0)
    far = op("logical_and", op("not_equal", rest, 0), op("not_equal", op("less", rest, 0), negative))
    back = _choose(tfl, op("equal", op("less", b, 0), negative), -1, 1)
    return op("add", quotient, op("select_v2", far, back, 0))


def _choose(
    tfl: TflBuilder, condition: Value, then: float, otherwise: float, dtype: type = np.int64
) -> Value:
    return tfl.broadcast("select_v2", condition, scalar(then, dtype), scalar(otherwise, dtype))


def _unsigned_quotient(tfl: TflBuilder, a: Value, b: Value) -> Value:
    op = tfl.broadcast
    bits, by = reinterpret(tfl, a, np.int64), reinterpret(tfl, b, np.int64)
    divisor = _magnitude(tfl, by)
    first = _round(tfl, op("div", _magnitude(tfl, bits), divisor), np.uint64)
    quotient, rest = _refine(tfl, bits, by, divisor, reinterpret(tfl, first, np.int64))
    quotient = op("add", quotient, _choose(tfl, op("less", rest, 0), -1, 0))
    # A divisor from 2^63 on goes in once or not at all.
    once = _choose(tfl, op("greater_equal", a, b), 1, 0)
    return reinterpret(tfl, op("select_v2", op("less", by, 0), once, quotient), np.uint64)


def _refine(tfl: TflBuilder, a: Value, b: Value, divisor: Value, first: Value) -> tuple[Value, Value]:
    """Return the nearest quotient and its remainder from a first estimate; a float32 quotient is right to 22 bits."""
    op = tfl.broadcast
    quotient = first
    rest = op("sub", a, op("mul", first, b))
    for _ in range(2):
        step = _round(tfl, op("div", tfl.convert(rest, np.float32), divisor), np.int64)
        quotient = op("add", quotient, step)
        rest = op("sub", rest, op("mul", step, b))
    return quotient, rest


def _magnitude(tfl: TflBuilder, bits: Value) -> Value:
    """Return an estimate of the unsigned number of the bits, float32."""
    op = tfl.broadcast
    wrapped = _choose(tfl, op("less", bits, 0), 2.0**64, 0, np.float32)
    return op("add", tfl.convert(bits, np.float32), wrapped)


def _round(tfl: TflBuilder, x: Value, dtype: type) -> Value:
    return tfl.convert(tfl.apply("round", x), dtype)


def remainder(tfl: TflBuilder, a: Value, b: Value) -> Value:
    """Return a mod b of unsigned 64-bit numbers."""
    return tfl.broadcast("sub", a, tfl.broadcast("mul", divide(tfl, a, b), b))


# ---- bits


def reinterpret(tfl: TflBuilder, value: Value, dtype: np.dtype[np.generic] | type) -> Value:
    """Read the elements' bits as another type of the same width."""
    if value.constant is not None:
        return constant(np.ascontiguousarray(value.constant).view(dtype).reshape(value.constant.shape))
    order = tfl.common_order(value)
    return tfl.value(tfl.bitcast(tfl.tensor(value, order), dtype), order)


def bitwise(tfl: TflBuilder, name: str, a: Value, b: Value) -> Value:
    """Return the bitwise "and", "or" or "xor" of two operands."""
    if a.dtype.itemsize == 8:
        joined = bitwise(tfl, name, _halves(tfl, a), _halves(tfl, b))
        return tfl.value(tfl.op("bitcast", [tfl.tensor(joined)], joined.shape[:-1], a.dtype))
    if a.dtype == np.uint32:
        signed = [reinterpret(tfl, value, np.int32) for value in (a, b)]
        return reinterpret(tfl, bitwise(tfl, name, *signed), np.uint32)
    if a.dtype != np.int32:
        wide = [tfl.convert(value, np.int32) for value in (a, b)]
        return tfl.convert(bitwise(tfl, name, *wide), a.dtype)
    different = tfl.broadcast("bitwise_xor", a, b)
    if name == "xor":
        return different
    both = _both(tfl, a, b, different)
    return both if name == "and" else tfl.broadcast("add", both, different)


def _both(tfl: TflBuilder, a: Value, b: Value, different: Value) -> Value:
    """Return a & b of int32: a + b = 2 (a & b) + (a ^ b), the sign bit apart."""
    op = tfl.broadcast
    twice = op("sub", op("add", a, b), different)
    low = op("right_shift", reinterpret(tfl, twice, np.uint32), 1)
    negative = op("logical_and", op("less", a, 0), op("less", b, 0))
    low = reinterpret(tfl, low, np.int32)
    return op("add", low, _choose(tfl, negative, np.iinfo(np.int32).min, 0, np.int32))


def _halves(tfl: TflBuilder, value: Value) -> Value:
    """Return 64-bit numbers as two of 32 bits along a last axis."""
    if value.constant is not None:
        halves = np.ascontiguousarray(value.constant).view(np.int32)
        return constant(halves.reshape((*value.constant.shape, 2)))
    return tfl.value(tfl.op("bitcast", [tfl.tensor(value)], (*value.shape, 2), np.int32))


def shift(tfl: TflBuilder, x: Value, count: Value, *, left: bool) -> Value:
    """Shift unsigned numbers; a shift by all their bits gives 0."""
    width = x.dtype.itemsize * 8
    factors = np.array([*(1 << bit for bit in range(width)), 0], x.dtype)
    if left:
        return tfl.broadcast("mul", x, _look_up(tfl, factors, count))
    last = tfl.broadcast("minimum", count, width - 1)
    if x.dtype == np.uint64:
        result = divide(tfl, x, _look_up(tfl, factors, last))
    else:
        result = tfl.broadcast("right_shift", x, last)
    within = tfl.broadcast("less", count, width)
    return tfl.broadcast("select_v2", within, result, 0)


def _look_up(tfl: TflBuilder, table: Array, index: Value) -> Value:
    """Look up a table; indices beyond its end give the last element."""
    last = len(table) - 1
    if index.constant is not None:
        return constant(table[np.minimum(index.constant, last).astype(np.int64)])
    index = tfl.convert(tfl.broadcast("minimum", index, last), np.int32)
    order = identity(index.rank)
    return tfl.value(tfl.gather(tfl.constant(table), tfl.tensor(index, order), 0, index.shape), order)


# ---- powers


def power(tfl: TflBuilder, base: Value, exponent: Value) -> Value:
    """Return whole powers by repeated squaring; with a negative exponent only 1 and -1 do not give 0."""
    if exponent.constant is not None and exponent.constant.size == 1 and exponent.rank <= base.rank:
        fixed = int(exponent.constant.item())
        if 0 < fixed < 64:
            return _fixed_power(tfl, base, fixed)
    op = tfl.broadcast
    one = scalar(1, base.dtype)
    exponent = tfl.convert(exponent, np.int64)
    bits, square, result = _six_bits(tfl, exponent), base, one
    for bit in range(6):
        place = op("right_shift", bits, bit)
        odd = op("equal", op("floor_mod", place, 2), 1)
        result = op("mul", result, op("select_v2", odd, square, one))
        square = op("mul", square, square)
    # Other odd numbers whose square wraps to 1 do not matter.
    lasting = op("equal", op("mul", base, base), one)
    remains = op("logical_or", op("greater_equal", exponent, 0), lasting)
    return op("select_v2", remains, result, 0)


def _six_bits(tfl: TflBuilder, exponent: Value) -> Value:
    """Return the exponent's absolute value as int32 below 64, with its parity: larger ones overflow anyway."""
    op = tfl.broadcast
    size = op("maximum", exponent, op("sub", 0, exponent))
    largest = op("add", op("floor_mod", size, 2), 62)
    return tfl.convert(op("minimum", size, largest), np.int32)


def _fixed_power(tfl: TflBuilder, base: Value, exponent: int) -> Value:
    result, square = None, base
    while exponent:
        if exponent & 1:
            result = square if result is None else tfl.broadcast("mul", result, square)
        exponent >>= 1
        square = tfl.broadcast("mul", square, square) if exponent else square
    assert result is not None
    return result
