"""Numbers with the half step of the grid that they were rounded to.

A constant of a quantized file stands for every number within half a step of it. Folding such constants into each other
(a scale into a weight, a sum into a bias) moves and stretches these intervals:

    (v1 +- h1) + (v2 +- h2) = v1 + v2 +- (h1 + h2)
    (v1 +- h1) * (v2 +- h2) = v1 v2 +- (|v1| h2 + |v2| h1 + h1 h2)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np

from onnxport.core.arrays import Array

# Of a number: half of the last bit of floats that are rounded to them.
HALF_STEPS = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
# The same of the smallest numbers, whose steps are all alike or which become 0, and the largest number.
_LEAST_HALF = {"float16": 2.0**-25, "bfloat16": 2.0**-126}
LARGEST = {"float16": 65504.0, "bfloat16": 3.3895e38}
# A single constant below this number, as an epsilon, becomes it.
# Times what rounding each constant once explains: what no order of folding and rounding adds up to.
MOST_ROUNDINGS = 8.0
SMALLEST_NORMAL = {"float16": 2.0**-14, "bfloat16": 2.0**-126}
_ZERO: Array = np.zeros(())
_INSIDE: Array = np.zeros((), np.int8)


@dataclass(frozen=True)
class Rounded:
    """A constant.

    Attributes:
        values: float64; integers, truth values and texts as they are.
        half: float64, half a step of each element, broadcastable to `values`; 0 for what is stored exactly.
        ends: int8, broadcastable to `values`: 1 at the upper end of the grid, which may stand for more, -1 at the
            lower one, which may stand for less, else 0.
    """

    values: Array
    half: Array = field(default_factory=lambda: _ZERO)
    ends: Array = field(default_factory=lambda: _INSIDE)

    @classmethod
    def exact(cls, array: Any) -> Rounded:
        """Return a constant that is stored as it is, or as a float of 16 bits."""
        values = np.asarray(array)
        if not is_float(values):
            return cls(values)
        name, wide = values.dtype.name, values.astype(np.float64)
        if name not in HALF_STEPS:
            return cls(wide)
        sizes = np.abs(wide)
        return cls(
            wide,
            np.maximum(sizes * HALF_STEPS[name], _LEAST_HALF[name]),
            _ends(wide, sizes >= LARGEST[name]),
        )

    def narrowed(self, name: str) -> Rounded:
        """Return the numbers after a cast to a float type of 16 bits, with its half steps on top."""
        more = Rounded.exact(self.values.astype(getattr(ml_dtypes, name, name)))
        return Rounded(self.values, self.half + more.half, _either(self.ends, more.ends))

    def spread(self, name: str) -> Rounded:
        """Return the numbers with the half step that rounding them to a float type of 16 bits may add.

        Numbers beyond the type's range have the half step of a larger exponent: `ends` says what becomes of them.
        """
        sizes = np.abs(self.values)
        more = np.maximum(sizes * HALF_STEPS[name], _LEAST_HALF[name])
        if self.is_scalar:  # an epsilon that became 0 would divide by it
            more = np.where((sizes > 0) & (sizes < SMALLEST_NORMAL[name]), SMALLEST_NORMAL[name], more)
        return replace(self, half=self.half + np.where(np.isfinite(more), more, 0.0))

    @classmethod
    def number(cls, value: float) -> Rounded:
        return cls(np.asarray(float(value)))

    @property
    def is_exact(self) -> bool:
        return not self.half.any()

    @property
    def is_float(self) -> bool:
        return is_float(self.values)

    @property
    def is_scalar(self) -> bool:
        return self.values.size == 1

    def plus(self, other: Rounded) -> Rounded:
        if other is NOTHING:
            return self
        return Rounded(self.values + other.values, self.half + other.half, _either(self.ends, other.ends))

    def times(self, other: Rounded) -> Rounded:
        if other is ONE:
            return self
        half = np.abs(other.values) * self.half
        if not other.is_exact:
            half = half + np.abs(self.values) * other.half + self.half * other.half
        ends = _either(_ends(other.values, self.ends), _ends(self.values, other.ends))
        return Rounded(self.values * other.values, half, ends)

    def inverse(self) -> Rounded:
        """Return 1 / numbers, for intervals without 0."""
        values = 1 / self.values
        return Rounded(values, np.abs(values) * self.half / np.abs(self.values), -self.ends)

    def moved(self, function: Callable[[Array], Array]) -> Rounded:
        """Return the elements in other places: `function` transposes, reshapes or selects."""
        parts = (np.broadcast_to(each, self.values.shape) for each in (self.values, self.half, self.ends))
        return Rounded(*(np.asarray(function(each)) for each in parts))


def _ends(factor: Array, ends: Array) -> Array:
    """Return the ends of numbers that are multiplied."""
    return (np.sign(factor) * ends).astype(np.int8) if ends.any() else _INSIDE


def _either(ours: Array, theirs: Array) -> Array:
    return np.where(ours != 0, ours, theirs).astype(np.int8) if ours.any() else theirs


ONE = Rounded(np.ones(()))
NOTHING = Rounded(np.zeros(()))


def is_float(values: Array) -> bool:
    """Return whether an array holds floats, those of ml_dtypes included."""
    return values.dtype.kind == "f" or values.dtype.name.startswith(("bfloat", "float"))


def dequantize(codes: Array, scale: Array, zero_point: Array) -> Rounded:
    """Return what integer codes stand for: scale * (code - zero point), with half steps of `scale`.

    The ends are those of the codes' type, and -127 of int8: symmetric quantizers leave -128 out.
    """
    whole = codes.astype(np.float64)
    scales = np.abs(scale.astype(np.float64))
    values = (whole - zero_point.astype(np.float64)) * scale.astype(np.float64)
    low, high = _limits(codes)
    ends = (whole >= high).astype(np.int8) - (whole <= low)
    return Rounded(values, np.broadcast_to(scales / 2, values.shape), _ends(scale, ends))


def _limits(codes: Array) -> tuple[float, float]:
    name = codes.dtype.name
    if name in ("int4", "uint4", "int2", "uint2"):
        bits = int(name[-1])
        return (-(2 ** (bits - 1)) + 1, 2 ** (bits - 1) - 1) if name[0] == "i" else (0, 2**bits - 1)
    info = np.iinfo(codes.dtype)
    return (info.min + 1 if info.min < 0 else 0), info.max


# Codes of 8 bits, and how near floats lie to their multiples of a step; fewer numbers lie so by chance.
_MOST_STEPS, _ON_STEP, _FEWEST = 255, 1e-3, 5


def hidden_grid(values: Array, axis: int | None) -> Rounded | None:
    """Return floats with the grid that they were rounded to before they were stored: multiples of a step, up to 255.

    Args:
        axis: each index has a step of its own; None for one step for all.
    """
    rows = (
        values.reshape(1, -1)
        if axis is None
        else np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)
    )
    steps = [_hidden_step(row) for row in rows]
    if any(each is None for each in steps):
        return None
    step = np.array([each or 0.0 for each in steps])
    step = step.reshape(
        [-1 if each == axis else 1 for each in range(values.ndim)] if axis is not None else ()
    )
    largest = np.repeat(np.abs(rows).max(axis=1), rows.shape[1]).reshape(rows.shape)
    ends = np.where(np.abs(rows) == largest, np.sign(rows), 0).astype(np.int8)
    if axis is not None:
        shape = values.shape[axis], *np.delete(values.shape, axis)
        ends = np.moveaxis(ends.reshape(shape), 0, axis)
    return Rounded(values, np.broadcast_to(step / 2, values.shape), ends.reshape(values.shape))


def _hidden_step(row: Array) -> float | None:
    """Return the largest step of which all numbers are multiples; None where there is none, or are too few numbers."""
    largest = float(np.abs(row).max(initial=0.0))
    if not largest:
        return 0.0
    if np.count_nonzero(row) < _FEWEST:
        return None
    for count in range(1, _MOST_STEPS + 1):
        codes = row * (count / largest)
        if (np.abs(codes - np.rint(codes)) <= _ON_STEP).all():
            return largest / count
    return None


# Of the largest magnitude: float32 arithmetic in another order.
FLOAT_NOISE = 1e-5
_EXACTLY = 1.001  # of half a step: the quotient was rounded to float32
_UNDERFLOW = 2.0**-126  # below it float32 has fewer digits, or 0


def noise(theirs: Rounded, axis: int | None = None) -> Array:
    """Return how far float32 arithmetic may lead from a constant, of its own or of each slice along `axis`."""
    magnitudes = np.abs(theirs.values)
    if axis is None or not magnitudes.ndim:
        largest = magnitudes.max(initial=0.0)
    else:
        others = tuple(each for each in range(magnitudes.ndim) if each != axis % magnitudes.ndim)
        largest = magnitudes.max(axis=others, keepdims=True, initial=0.0)
    return np.asarray(np.maximum(FLOAT_NOISE * largest, _UNDERFLOW))


def beyond_half_step(ours: Rounded, theirs: Rounded, axis: int | None = None) -> Array:
    """Return where a constant lies further than the half steps of both from the other; `axis` is that of channels."""
    # Not greater than, but not within: NaN is beyond everything.
    return ~np.asarray(np.abs(ours.values - theirs.values) <= largest_error(ours, theirs, axis))


def largest_error(ours: Rounded, theirs: Rounded, axis: int | None = None) -> Array:
    """Return how far rounding and float32 arithmetic may lead; `axis` is that of channels."""
    return np.asarray((ours.half + theirs.half) * _EXACTLY + noise(theirs, axis))


# Of the sum of squares of numbers: what methods that choose ranges cut off at most.
MOST_CUT = 0.15


def cut_share(ours: Rounded, theirs: Rounded, where: Array, axis: int | None = None) -> Array:
    """Return the share of the sum of squares that is cut off at some elements, of all or of each slice along `axis`."""
    lost, whole = (
        np.square(each).reshape(1, -1)
        if axis is None
        else np.square(np.moveaxis(each, axis, 0)).reshape(each.shape[axis], -1)
        for each in (np.where(where, theirs.values - ours.values, 0.0), theirs.values)
    )
    total = whole.sum(axis=1)
    return np.asarray(np.divide(lost.sum(axis=1), total, out=np.zeros(len(total)), where=total > 0))


def is_cut(ours: Rounded, theirs: Rounded) -> Array:
    """Return where the exact number lies beyond the end of the grid that the rounded one stands at."""
    return np.asarray((theirs.values - ours.values) * ours.ends > 0)


def is_inside(ours: Rounded) -> Array:
    """Return which numbers tell a grid's scale: neither 0 nor at an end, which may stand for any number beyond."""
    return np.asarray((ours.ends == 0) & (ours.values != 0))
