"""Integer arithmetic without TFLite kernels: 64-bit division, bitwise logic, shifts, powers.

Everything wraps around as the type does, and operands broadcast.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from onnxport.converters.tflite.broadcasting import broadcast
from onnxport.converters.tflite.builder import TflBuilder
from onnxport.converters.tflite.layout import identity, permute
from onnxport.converters.tflite.values import Value, scalar
from onnxport.core.arrays import Array

_ZERO, _ONE, _MINUS_ONE = (scalar(number, np.int64) for number in (0, 1, -1))

# ---- division


def divide(tfl: TflBuilder, a: Value, b: Value) -> Value:
    """Return a / b, truncated toward zero: float32 estimates the quotient, integers correct it."""
    if a.dtype == np.uint64:
        return _unsigned_quotient(tfl, a, b)
    if a.dtype != np.int64:
        return tfl.converted(divide(tfl, tfl.converted(a, np.int64), tfl.converted(b, np.int64)), a.dtype)
    op = partial(broadcast, tfl)
    divisor = tfl.converted(b, np.float32)
    first = _round(tfl, op("div", tfl.converted(a, np.float32), divisor), np.int64)
    quotient, rest = _refine(tfl, a, b, divisor, first)
    # Nearest is one too far from zero where the rest and the dividend differ in sign.
    negative = op("less", a, _ZERO)
    far = op("logical_and", op("not_equal", rest, _ZERO), op("not_equal", op("less", rest, _ZERO), negative))
    back = op("select_v2", op("equal", op("less", b, _ZERO), negative), _MINUS_ONE, _ONE)
    return op("add", quotient, op("select_v2", far, back, _ZERO))


def _unsigned_quotient(tfl: TflBuilder, a: Value, b: Value) -> Value:
    op = partial(broadcast, tfl)
    bits, by = reinterpret(tfl, a, np.int64), reinterpret(tfl, b, np.int64)
    divisor = _magnitude(tfl, by)
    first = _round(tfl, op("div", _magnitude(tfl, bits), divisor), np.uint64)
    quotient, rest = _refine(tfl, bits, by, divisor, reinterpret(tfl, first, np.int64))
    quotient = op("add", quotient, op("select_v2", op("less", rest, _ZERO), _MINUS_ONE, _ZERO))
    # A divisor from 2^63 on goes in once or not at all.
    once = op("select_v2", op("greater_equal", a, b), _ONE, _ZERO)
    return reinterpret(tfl, op("select_v2", op("less", by, _ZERO), once, quotient), np.uint64)


def _refine(tfl: TflBuilder, a: Value, b: Value, divisor: Value, first: Value) -> tuple[Value, Value]:
    """Return the nearest quotient and its remainder from a first estimate; a float32 quotient is right to 22 bits."""
    op = partial(broadcast, tfl)
    quotient = first
    rest = op("sub", a, op("mul", first, b))
    for _ in range(2):
        step = _round(tfl, op("div", tfl.converted(rest, np.float32), divisor), np.int64)
        quotient = op("add", quotient, step)
        rest = op("sub", rest, op("mul", step, b))
    return quotient, rest


def _magnitude(tfl: TflBuilder, bits: Value) -> Value:
    """Return an estimate of the unsigned number of the bits, float32."""
    op = partial(broadcast, tfl)
    wrapped = op("select_v2", op("less", bits, _ZERO), scalar(2.0**64, np.float32), scalar(0, np.float32))
    return op("add", tfl.converted(bits, np.float32), wrapped)


def _round(tfl: TflBuilder, x: Value, dtype: type) -> Value:
    order = tfl.common_order(x)
    rounded = tfl.op("round", [tfl.tensor(x, order)], permute(x.shape, order))
    return tfl.converted(tfl.computed(rounded, order), dtype)


def remainder(tfl: TflBuilder, a: Value, b: Value) -> Value:
    """Return a mod b of unsigned 64-bit numbers."""
    return broadcast(tfl, "sub", a, broadcast(tfl, "mul", divide(tfl, a, b), b))


# ---- bits


def reinterpret(tfl: TflBuilder, value: Value, dtype: np.dtype[np.generic] | type) -> Value:
    """Read the elements' bits as another type of the same width."""
    if value.constant is not None:
        constant = np.ascontiguousarray(value.constant).view(dtype).reshape(value.constant.shape)
        return Value(value.shape, dtype, constant=constant)
    order = tfl.common_order(value)
    return tfl.computed(tfl.bitcast(tfl.tensor(value, order), dtype), order)


def bitwise(tfl: TflBuilder, name: str, a: Value, b: Value) -> Value:
    """Return the bitwise "and", "or" or "xor" of two operands."""
    if a.dtype.itemsize == 8:
        joined = bitwise(tfl, name, _halves(tfl, a), _halves(tfl, b))
        shape = joined.shape[:-1]
        return tfl.computed(tfl.op("bitcast", [tfl.tensor(joined)], shape, a.dtype))
    if a.dtype == np.uint32:
        signed = [reinterpret(tfl, value, np.int32) for value in (a, b)]
        return reinterpret(tfl, bitwise(tfl, name, *signed), np.uint32)
    if a.dtype != np.int32:
        wide = [tfl.converted(value, np.int32) for value in (a, b)]
        return tfl.converted(bitwise(tfl, name, *wide), a.dtype)
    different = broadcast(tfl, "bitwise_xor", a, b)
    if name == "xor":
        return different
    both = _both(tfl, a, b, different)
    return both if name == "and" else broadcast(tfl, "add", both, different)


def _both(tfl: TflBuilder, a: Value, b: Value, different: Value) -> Value:
    """Return a & b of int32: a + b = 2 (a & b) + (a ^ b), the sign bit apart."""
    op = partial(broadcast, tfl)
    twice = op("sub", op("add", a, b), different)
    low = op("right_shift", reinterpret(tfl, twice, np.uint32), scalar(1, np.uint32))
    zero, lowest = scalar(0, np.int32), scalar(np.iinfo(np.int32).min, np.int32)
    negative = op("logical_and", op("less", a, zero), op("less", b, zero))
    return op("add", reinterpret(tfl, low, np.int32), op("select_v2", negative, lowest, zero))


def _halves(tfl: TflBuilder, value: Value) -> Value:
    """Return 64-bit numbers as two of 32 bits along a last axis."""
    shape = (*value.shape, 2)
    if value.constant is not None:
        constant = np.ascontiguousarray(value.constant).view(np.int32).reshape((*value.constant.shape, 2))
        return Value(shape, np.int32, constant=constant)
    return tfl.computed(tfl.op("bitcast", [tfl.tensor(value)], shape, np.int32))


def shift(tfl: TflBuilder, x: Value, count: Value, *, left: bool) -> Value:
    """Shift unsigned numbers; a shift by all their bits gives 0."""
    width = x.dtype.itemsize * 8
    factors = np.array([*(1 << bit for bit in range(width)), 0], x.dtype)
    if left:
        return broadcast(tfl, "mul", x, _look_up(tfl, factors, count))
    last = broadcast(tfl, "minimum", count, scalar(width - 1, x.dtype))
    if x.dtype == np.uint64:
        result = divide(tfl, x, _look_up(tfl, factors, last))
    else:
        result = broadcast(tfl, "right_shift", x, last)
    within = broadcast(tfl, "less", count, scalar(width, x.dtype))
    return broadcast(tfl, "select_v2", within, result, scalar(0, x.dtype))


def _look_up(tfl: TflBuilder, table: Array, index: Value) -> Value:
    """Look up a table; indices beyond its end give the last element."""
    last = len(table) - 1
    if index.constant is not None:
        return Value(
            index.shape, table.dtype, constant=table[np.minimum(index.constant, last).astype(np.int64)]
        )
    index = tfl.converted(broadcast(tfl, "minimum", index, scalar(last, index.dtype)), np.int32)
    order = identity(index.rank)
    gathered = tfl.op(
        "gather", [tfl.constant(table), tfl.tensor(index, order)], index.shape, axis=0, batch_dims=0
    )
    return tfl.computed(gathered, order)


# ---- powers


def power(tfl: TflBuilder, base: Value, exponent: Value) -> Value:
    """Return whole powers by repeated squaring; with a negative exponent only 1 and -1 do not give 0."""
    if exponent.constant is not None and exponent.constant.size == 1 and exponent.rank <= base.rank:
        fixed = int(exponent.constant.item())
        if 0 < fixed < 64:
            return _fixed_power(tfl, base, fixed)
    op = partial(broadcast, tfl)
    one = scalar(1, base.dtype)
    exponent = tfl.converted(exponent, np.int64)
    bits, square, result = _six_bits(tfl, exponent), base, one
    for bit in range(6):
        place = op("right_shift", bits, scalar(bit, np.int32))
        odd = op("equal", op("floor_mod", place, scalar(2, np.int32)), scalar(1, np.int32))
        result = op("mul", result, op("select_v2", odd, square, one))
        square = op("mul", square, square)
    lasting = op(
        "equal", op("mul", base, base), one
    )  # the odd numbers whose square wraps to 1 are no concern
    remains = op("logical_or", op("greater_equal", exponent, _ZERO), lasting)
    return op("select_v2", remains, result, scalar(0, base.dtype))


def _six_bits(tfl: TflBuilder, exponent: Value) -> Value:
    """Return the exponent's absolute value as int32 below 64, with its parity: larger ones overflow anyway."""
    op = partial(broadcast, tfl)
    size = op("maximum", exponent, op("sub", _ZERO, exponent))
    largest = op("add", op("floor_mod", size, scalar(2, np.int64)), scalar(62, np.int64))
    return tfl.converted(op("minimum", size, largest), np.int32)


def _fixed_power(tfl: TflBuilder, base: Value, exponent: int) -> Value:
    result, square = None, base
    while exponent:
        if exponent & 1:
            result = square if result is None else broadcast(tfl, "mul", result, square)
        exponent >>= 1
        square = broadcast(tfl, "mul", square, square) if exponent else square
    assert result is not None
    return result
