"""Floats in fewer bits: the numbers and scales that stand for an array of weights, nearly or exactly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from onnxport.core.arrays import Array

# Rows are worked on in portions of so many elements: a large weight is not held in memory several times.
_PORTION = 1 << 22
# With four bits a scale that cuts off the largest weights is nearer to all others; these are tried, as parts of the
# scale that reaches the largest. Eight bits gain nothing by it.
_CUTS = np.linspace(1.0, 0.6, 17, dtype=np.float32)
# The largest number of a row is mostly the limit of the type, so that these are tried first.
_LARGEST = {
    8: (127, 128, 255, *range(254, 128, -1), *range(126, 0, -1)),
    4: (7, 8, *range(15, 8, -1), *range(6, 0, -1)),
}
# A row of ordinary floats is told by so many of its elements.
_SAMPLE = 64


@dataclass(frozen=True)
class Encoded:
    """Weights as they are stored.

    Attributes:
        numbers: float16, or integers of `bits` bits held as int8; in the shape of the weights, or in that of `grouped`.
        bits: 16, 8 or 4.
        scales, zero_points: one per group of weights; empty for float16.
        axis: the axis of `numbers` along which the groups lie; None for one group.
    """

    numbers: Array
    bits: int
    scales: Array
    zero_points: Array
    axis: int | None = None


def halves(weights: Array) -> Encoded | None:
    """The nearest float16; None where a finite weight has none."""
    with np.errstate(over="ignore"):
        numbers = weights.astype(np.float16)
    if not np.array_equal(np.isfinite(numbers), np.isfinite(weights)):
        return None
    return Encoded(numbers, 16, np.empty(0), np.empty(0))


def exact_halves(weights: Array) -> Encoded | None:
    """The float16 that are exactly these weights, if they are."""
    encoded = halves(weights)
    if encoded is None or not np.array_equal(encoded.numbers.astype(np.float32), weights):
        return None
    return encoded


def integers(weights: Array, bits: int, axis: int | None) -> Encoded | None:
    """The nearest integers, symmetric, with a scale for each index of `axis`; None where a weight is not finite."""
    if not np.isfinite(weights).all():
        return None
    rows = _rows(weights, axis)
    largest = 2 ** (bits - 1) - 1
    numbers, scales = np.empty(rows.shape, np.int8), np.empty(len(rows), np.float32)
    for part in _portions(rows):
        scales[part] = _scales(rows[part], largest, _CUTS if bits == 4 else _CUTS[:1])
        numbers[part] = np.clip(np.rint(rows[part] / scales[part, None]), -largest, largest)
    return Encoded(_unrolled(numbers, weights.shape, axis), bits, scales, np.zeros(len(rows), np.int64), axis)


def recovered(weights: Array, bits: int, axis: int | None) -> Encoded | None:
    """The integers that are exactly these weights when multiplied by a scale for each index of `axis`, if there are.

    Weights that the source stored as integers are found again after all that moved and scaled their rows.
    """
    rows = _rows(weights, axis)
    lowest = -(2 ** (bits - 1))
    numbers, scales = np.empty(rows.shape, np.int8), np.empty(len(rows), np.float32)
    zero_points = np.empty(len(rows), np.int64)
    for part in _portions(rows):
        found = _whole_multiples(rows[part], bits)
        if found is None:
            return None
        multiples, scales[part] = found
        least, most = multiples.min(axis=1), multiples.max(axis=1)
        fits = (least >= lowest) & (most <= -lowest - 1)
        zero_points[part] = np.where(fits, 0, np.where(least < lowest, lowest - least, -lowest - 1 - most))
        numbers[part] = multiples + zero_points[part, None]
    return Encoded(_unrolled(numbers, weights.shape, axis), bits, scales, zero_points, axis)


def _scales(rows: Array, largest: int, cuts: Array) -> Array:
    """Of the cuts the one with the least squared error, row by row; 1 for a row of zeros."""
    reach = np.abs(rows).max(axis=1) / np.float32(largest)
    reach = np.maximum(np.where(reach == 0, np.float32(1), reach), np.finfo(np.float32).tiny)
    best = reach.astype(np.float32)
    if len(cuts) == 1:
        return best
    least = np.full(len(rows), np.inf, np.float32)
    for cut in cuts:
        scales = reach * cut
        numbers = np.clip(np.rint(rows / scales[:, None]), -largest, largest)
        error = np.square(rows - numbers * scales[:, None]).sum(axis=1)
        best = np.where(error < least, scales, best)
        least = np.minimum(error, least)
    return best


def _whole_multiples(rows: Array, bits: int) -> tuple[Array, Array] | None:
    """[rows, n] as integers times one float32 for each row, exactly; None where a row is not so."""
    peaks = np.abs(rows).max(axis=1)
    if not np.isfinite(peaks).all():
        return None
    scales = np.where(peaks == 0, np.float32(1), np.float32(0))
    for largest in _LARGEST[bits]:
        for ulps in (0, -1, 1):
            unknown = np.flatnonzero(scales == 0)
            tried = _moved((peaks[unknown].astype(np.float64) / largest).astype(np.float32), ulps)
            for columns in (slice(_SAMPLE), slice(None)):
                right = _are_multiples(rows[unknown, columns], tried, 2**bits - 1)
                unknown, tried = unknown[right], tried[right]
            scales[unknown] = tried
    if not scales.all():
        return None
    return np.rint(rows / scales[:, None]).astype(np.int64), scales


def _moved(scales: Array, ulps: int) -> Array:
    """Each scale's neighbour so many floats away."""
    bits = scales.view(np.int32) + np.int32(ulps)
    return np.maximum(bits.view(np.float32), np.finfo(np.float32).tiny)


def _are_multiples(rows: Array, scales: Array, span: int) -> Array:
    """Whether each row is its scale times integers within `span`, to the last bit, as DEQUANTIZE computes it."""
    steps = np.rint(rows / scales[:, None])
    exact = (steps * scales[:, None] == rows).all(axis=1)
    return np.asarray(exact & (steps.max(axis=1, initial=0) - steps.min(axis=1, initial=0) <= span))


def _rows(weights: Array, axis: int | None) -> Array:
    """[groups, the elements of one]; a view where the layout allows."""
    if axis is None:
        return weights.reshape(1, -1)
    return np.moveaxis(weights, axis, 0).reshape(weights.shape[axis], -1)


def _unrolled(rows: Array, shape: tuple[int, ...], axis: int | None) -> Array:
    """_rows undone."""
    if axis is None:
        return rows.reshape(shape)
    moved = (shape[axis], *shape[:axis], *shape[axis + 1 :])
    return np.moveaxis(rows.reshape(moved), 0, axis).copy(order="C")


def _portions(rows: Array) -> Iterator[slice]:
    step = max(_PORTION // max(prod(rows.shape[1:]), 1), 1)
    return (slice(start, start + step) for start in range(0, len(rows), step))
