"""Encodings of float weights in fewer bits, nearest or exact."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from onnxport.core.arrays import Array

# Elements that are encoded at a time, so that temporaries of large weights stay small.
_PORTION = 1 << 22
# With 4 bits, a scale that clips the largest weights is nearer to all others. These fractions of the scale that
# reaches the largest are tried. With 8 bits that gains nothing.
_CUTS = np.linspace(1.0, 0.6, 17, dtype=np.float32)
# Candidates for the largest integer of a row, the limits of the type first, which it mostly is.
_LARGEST = {
    8: (127, 128, 255, *range(254, 128, -1), *range(126, 0, -1)),
    4: (7, 8, *range(15, 8, -1), *range(6, 0, -1)),
}
# Elements that mostly suffice to recognize a row of ordinary floats.
_SAMPLE = 64
# Times a scale: below it lies no difference of two multiples, each rounded to float32.
_LEAST_GAP = 0.999


@dataclass(frozen=True)
class Encoded:
    """Stored weights."""

    numbers: Array  # float16, or integers held as int8; in the shape of the weights, or as blocks in rows
    bits: int  # 16, 8 or 4
    scales: Array  # one per group of weights; empty for float16
    zero_points: Array  # as scales
    axis: int | None = None  # of `numbers`, along which the groups lie; None for one group


def encode_float16(weights: Array) -> Encoded | None:
    """Return the nearest float16; None if a finite weight overflows."""
    with np.errstate(over="ignore"):
        numbers = weights.astype(np.float16)
    if not np.array_equal(np.isfinite(numbers), np.isfinite(weights)):
        return None
    return Encoded(numbers, 16, np.empty(0), np.empty(0))


def encode_float16_exactly(weights: Array) -> Encoded | None:
    """Return these weights in float16 if that is exact."""
    encoded = encode_float16(weights)
    if encoded is None or not np.array_equal(encoded.numbers.astype(np.float32), weights):
        return None
    return encoded


def encode_integers(weights: Array, bits: int, axis: int | None) -> Encoded | None:
    """Return the nearest integers, symmetric, with a scale per index of `axis`; None if a weight is not finite."""
    if not np.isfinite(weights).all():
        return None
    rows = _to_rows(weights, axis)
    largest = 2 ** (bits - 1) - 1
    numbers, scales = np.empty(rows.shape, np.int8), np.empty(len(rows), np.float32)
    for part in _portions(rows):
        scales[part] = _best_scales(rows[part], largest, _CUTS if bits == 4 else _CUTS[:1])
        numbers[part] = np.clip(np.rint(rows[part] / scales[part, None]), -largest, largest)
    numbers = _from_rows(numbers, weights.shape, axis)
    return Encoded(numbers, bits, scales, np.zeros(len(rows), np.int64), axis)


def recover_integers(weights: Array, bits: int, axis: int | None) -> Encoded | None:
    """Return integers that are exactly these weights times a scale per index of `axis`, if there are any.

    Recovers weights that the source stored as integers, even if their rows were moved and scaled since.
    """
    rows = _to_rows(weights, axis)
    lowest = -(2 ** (bits - 1))
    numbers, scales = np.empty(rows.shape, np.int8), np.empty(len(rows), np.float32)
    zero_points = np.empty(len(rows), np.int64)
    for part in _portions(rows):
        found = _find_multiples(rows[part], bits)
        if found is None:
            return None
        multiples, scales[part] = found
        least, most = multiples.min(axis=1), multiples.max(axis=1)
        fits = (least >= lowest) & (most <= -lowest - 1)
        zero_points[part] = np.where(fits, 0, np.where(least < lowest, lowest - least, -lowest - 1 - most))
        numbers[part] = multiples + zero_points[part, None]
    return Encoded(_from_rows(numbers, weights.shape, axis), bits, scales, zero_points, axis)


def _best_scales(rows: Array, largest: int, cuts: Array) -> Array:
    """Return for each row the scale of the cut with the least squared error; 1 for a row of zeros."""
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


def _find_multiples(rows: Array, bits: int) -> tuple[Array, Array] | None:
    """Return rows [rows, n] as exact integers and a float32 scale per row; None if a row is not of that form."""
    peaks = np.abs(rows).max(axis=1)
    if not np.isfinite(peaks).all():
        return None
    if not _may_be_multiples(rows[:, :_SAMPLE], peaks, max(_LARGEST[bits])):
        return None
    scales = np.where(peaks == 0, np.float32(1), np.float32(0))
    for largest in _LARGEST[bits]:
        for ulps in (0, -1, 1):
            unknown = np.flatnonzero(scales == 0)
            tried = (peaks[unknown].astype(np.float64) / largest).astype(np.float32)
            tried = (tried.view(np.int32) + np.int32(ulps)).view(np.float32)  # the number `ulps` steps away
            tried = np.maximum(tried, np.finfo(np.float32).tiny)
            for columns in (slice(_SAMPLE), slice(None)):
                right = _are_multiples(rows[unknown, columns], tried, 2**bits - 1)
                unknown, tried = unknown[right], tried[right]
            scales[unknown] = tried
    if not scales.all():
        return None
    return np.rint(rows / scales[:, None]).astype(np.int64), scales


def _may_be_multiples(rows: Array, peaks: Array, largest: int) -> bool:
    """Return whether no two numbers of a row are closer than its least scale, which has its peak at `largest`.

    Ordinary floats are, and need none of the hundreds of trials of scales.
    """
    gaps = np.diff(np.sort(rows, axis=1), axis=1)
    least = np.where(gaps > 0, gaps, np.float32(np.inf)).min(axis=1, initial=np.inf)
    return bool((least >= peaks * np.float32(_LEAST_GAP / largest)).all())


def _are_multiples(rows: Array, scales: Array, span: int) -> Array:
    """Return whether each row is its scale times integers within `span`, to the last bit, as in DEQUANTIZE."""
    steps = np.rint(rows / scales[:, None])
    exact = (steps * scales[:, None] == rows).all(axis=1)
    return np.asarray(exact & (steps.max(axis=1, initial=0) - steps.min(axis=1, initial=0) <= span))


def _to_rows(weights: Array, axis: int | None) -> Array:
    """Reshape to [groups, elements of a group]; a view if the layout allows it."""
    if axis is None:
        return weights.reshape(1, -1)
    return np.moveaxis(weights, axis, 0).reshape(weights.shape[axis], -1)


def _from_rows(rows: Array, shape: tuple[int, ...], axis: int | None) -> Array:
    """Undo _to_rows."""
    if axis is None:
        return rows.reshape(shape)
    moved = (shape[axis], *shape[:axis], *shape[axis + 1 :])
    return np.moveaxis(rows.reshape(moved), 0, axis).copy(order="C")


def _portions(rows: Array) -> Iterator[slice]:
    step = max(_PORTION // max(prod(rows.shape[1:]), 1), 1)
    return (slice(start, start + step) for start in range(0, len(rows), step))
