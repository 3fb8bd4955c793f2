"""Integers of every width in MIL's int32: wrapping, division, powers, shifts and bits.

MIL computes in int32 alone. Integers of 8 and 16 bits are brought back into their range after every operator that can
leave it. Those of 32 and 64 bits are held as they are: a model's sizes, indices and labels fit, and a feed or a
constant beyond 32 bits is refused. Division rounds down in MIL (`floor_div`) and toward zero in ONNX; MIL does not say
what its `real_div` makes of integers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder
from onnxport.converters.coreml.numbers.formulas import Term
from onnxport.converters.coreml.values import LARGEST_RANK, Value

_NARROW = frozenset(("int8", "uint8", "int16", "uint16"))


def is_narrow(dtype: np.dtype[np.generic]) -> bool:
    """Return whether int32 holds more than the type, so that results have to be wrapped."""
    return dtype.name in _NARROW


def is_natural(value: Value) -> bool:
    """Return whether an integer is surely not negative."""
    if value.constant is not None:
        return value.is_integer and bool((value.constant >= 0).all())
    return value.is_natural


def wrap(x: Term, dtype: np.dtype[np.generic]) -> Term:
    """Wrap an int32 to the type."""
    if not is_narrow(dtype):
        return x
    count = 1 << (8 * dtype.itemsize)
    low = x % count
    return low if dtype.kind == "u" else low - (low // (count // 2)) * count


def product(a: Term, b: Term, dtype: np.dtype[np.generic]) -> Term:
    if dtype.name != "uint16":
        return wrap(a * b, dtype)
    # 65535 squared is beyond int32: by the two bytes of b, of which the higher one wraps.
    return wrap(a * (b % 256) + (a * (b // 256) % 256) * 256, dtype)


def quotient(a: Term, b: Term, dtype: np.dtype[np.generic]) -> Term:
    """Return a / b, truncated toward zero."""
    down = a // b
    if dtype.kind == "u":
        return down
    rest = a - down * b
    up = (rest.differs(0)) & ((a < 0) ^ (b < 0))
    return wrap(down + up.whole(), dtype)


def remainder(a: Term, b: Term, *, like_dividend: bool) -> Term:
    """Return a mod b with the divisor's sign, or with the dividend's."""
    rest = a % b
    if not like_dividend:
        return rest
    return (rest.differs(0) & ((a < 0) ^ (b < 0))).where(rest - b, rest)


# ---- powers


def power(a: Term, exponent: Term, dtype: np.dtype[np.generic]) -> Term:
    """Return whole powers by repeated squaring; with a negative exponent only 1 and -1 do not give 0."""
    known = exponent.value.constant
    if known is not None and known.size == 1 and 0 < known.item() < 64 and known.ndim <= a.value.rank:
        return _fixed_power(a, int(known.item()), dtype)
    # From 32 on only -1, 0 and 1 stay in int32: the parity decides.
    size = exponent.maximum(-exponent)
    bits = size.minimum(size % 2 + 30)
    square, result = a, None
    for bit in range(5):
        odd = (bits // 2**bit % 2).equals(1)
        factor = odd.where(square, square * 0 + 1)
        result = factor if result is None else product(result, factor, dtype)
        square = product(square, square, dtype)
    assert result is not None
    lasting = (exponent >= 0) | a.equals(1) | a.equals(-1)
    return lasting.where(result, 0)


def _fixed_power(a: Term, exponent: int, dtype: np.dtype[np.generic]) -> Term:
    result, square = None, a
    while exponent:
        if exponent & 1:
            result = square if result is None else product(result, square, dtype)
        exponent >>= 1
        square = product(square, square, dtype) if exponent else square
    assert result is not None
    return result


# ---- bits


def shift(x: Term, count: Term, dtype: np.dtype[np.generic], *, left: bool) -> Term:
    """Shift unsigned numbers; a shift by all their bits gives 0."""
    mil, width = x.mil, 8 * dtype.itemsize
    last = min(width, 31)
    factors = np.array([1 << min(bit, 30) for bit in range(last)] + [0 if left else 1], np.int32)
    place = count.minimum(last).value
    factor = Term(mil, mil.gather(x=mil.constant(factors), indices=place, axis=0))
    if left:
        return wrap(x * factor, dtype)
    return (count < last).where(x // factor, 0)


_JOINED: dict[str, Callable[[Term, Term], Term]] = {
    "and": lambda a, b: a * b,
    "or": lambda a, b: a.maximum(b),
    "xor": lambda a, b: (a + b) % 2,
}


def bitwise(mil: MilBuilder, name: str, a: Value, b: Value, dtype: np.dtype[np.generic]) -> Term:
    """Return the bitwise "and", "or" or "xor" of two operands."""
    width, joined = min(8 * dtype.itemsize, 32), _JOINED[name]
    weights = [1 << bit for bit in range(width)]
    if dtype.kind == "i" or width == 32:
        weights[-1] *= -1  # the sign bit; beyond 2^31 there is nothing in int32
    if max(a.rank, b.rank) < LARGEST_RANK:
        first, second = (_bits(mil, each, width) for each in (a, b))
        weighted = joined(first, second) * mil.constant(np.array(weights, np.int32))
        return weighted.call("reduce_sum", axes=[-1], keep_dims=False)
    bits = (joined(_bit(Term(mil, a), bit), _bit(Term(mil, b), bit)) * weights[bit] for bit in range(width))
    return reduce(lambda total, bit: total + bit, bits)


def _bits(mil: MilBuilder, x: Value, width: int) -> Term:
    """Return [..., width] bits, the lowest first, in two's complement."""
    column = Term(mil, mil.expand_dims(x=x, axes=[-1]))
    powers = np.array([1 << min(bit, 30) for bit in range(width)], np.int32)
    moved = column // mil.constant(powers)
    if width == 32:
        moved = moved // mil.constant(np.array([1] * 31 + [2], np.int32))
    return moved % 2


def _bit(x: Term, bit: int) -> Term:
    moved = x // (1 << min(bit, 30))
    return (moved // 2 if bit == 31 else moved) % 2
