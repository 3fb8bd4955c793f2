"""Rows of an activation: the values of all channels at some places of every sample.

A histogram tells how often a value occurs, a row which values occur together.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxport.core.arrays import Array

# Of all samples together, as many rows and elements of a tensor at most are wanted.
ROWS = 2048
ELEMENTS = 1 << 18
_LOOKED_AT = 16  # values that decide which rows are taken
# Bits of float32: the sign, half of what rounding cuts off, the largest upper half, and infinity without its sign.
_SIGN, _HALF, _LARGEST = np.uint32(0x80000000), np.uint32(0x8000), np.uint32(0x7F7F0000)
_TWICE_INFINITE = np.uint32(0xFF000000)


def rows_per_sample(samples: int, channels: int) -> int:
    """Return how many rows to keep of each sample, so that memory does not grow with the number of samples."""
    wanted = min(ROWS, ELEMENTS // max(channels, 1))
    return max(1, wanted // max(samples, 1))


class RowSample:
    """An observer that keeps some rows of every sample, at even distances.

    They are kept as the rounded upper 16 bits of their float32: to a relative 2^-9. The first place follows from the
    sample's values and the order of rows from their content, so neither depends on the order of the samples.

    Args:
        axis: of the channels; may be negative. A tensor of fewer dimensions is one row.
    """

    def __init__(self, axis: int, samples: int) -> None:
        self.axis, self.samples = axis, samples
        self._kept: list[Array] = []
        self._room = np.zeros((0, 0), np.uint16)

    def observe(self, values: Array, sample: int) -> None:
        """See Observer."""
        if not values.size:
            return
        places = _by_place(values, self.axis)
        before, channels, behind = places.shape
        stride = _stride(before * behind, rows_per_sample(self.samples, channels))
        start = _random_offset(values) % stride
        if before == 1:  # turned when they are half as large
            rows = np.asarray(places[0, :, start::stride], np.float32)
            self._keep(round_to_upper_half(rows).T)
        else:
            rows = places.transpose(0, 2, 1)[np.divmod(np.arange(start, before * behind, stride), behind)]
            self._keep(round_to_upper_half(np.asarray(rows, np.float32)))

    def _keep(self, rows: Array) -> None:
        """Copy rows into one block for all samples, which returns to the system as a whole."""
        count, channels = rows.shape
        if len(self._room) < count or self._room.shape[1] != channels:
            left = max(1, self.samples - len(self._kept))
            self._room = np.empty((left * (count + 1), channels), np.uint16)
        kept, self._room = self._room[:count], self._room[count:]
        kept[...] = rows
        self._kept.append(kept)

    def merge(self, other: RowSample) -> None:
        """See Observer."""
        self._kept += other._kept

    def __getstate__(self) -> tuple[Any, ...]:
        kept = sorted((kept.tobytes(), kept.shape[1]) for kept in self._kept)
        return self.axis, self.samples, [part for each in kept for part in each]

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.axis, self.samples, kept = state
        self._room = np.zeros((0, 0), np.uint16)
        pairs = zip(kept[::2], kept[1::2], strict=True)
        self._kept = [np.frombuffer(stored, np.uint16).reshape(-1, channels) for stored, channels in pairs]

    def halves(self) -> Array:
        """uint16[rows, channels]: the upper halves of float32; empty where the samples differ in their channels."""
        if len({kept.shape[1] for kept in self._kept}) != 1:
            return np.zeros((0, 0), np.uint16)
        return np.concatenate(sorted(self._kept, key=bytes))

    def rows(self) -> Array:
        """float32[rows, channels]; empty where the samples differ in their number of channels."""
        return from_upper_half(self.halves())


def from_upper_half(halves: Array) -> Array:
    """Return float32 of these upper halves, uint16."""
    bits: Array = np.left_shift(halves, 16, dtype=np.uint32)
    return bits.view(np.float32)


def _random_offset(values: Array) -> int:
    """Return a number that is determined by some of the values."""
    some = np.asarray(values.reshape(-1)[:: max(1, values.size // _LOOKED_AT)], np.float32)
    return int(some.view(np.uint32).sum(dtype=np.uint64))


def _by_place(values: Array, axis: int) -> Array:
    """Return a view, if it can be, of the shape (places, channels, places); without channels all is one place."""
    if not -values.ndim <= axis < values.ndim or values.ndim < 2:
        return values.reshape(1, -1, 1)
    axis %= values.ndim
    return values.reshape(math.prod(values.shape[:axis]), values.shape[axis], -1)


def round_to_upper_half(values: Array) -> Array:
    """Return uint16: the upper halves of float32, rounded half up; values that would become infinite are clipped.

    There is no NaN among them.
    """
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = bits + _HALF
    if rounded.size and ((rounded << 1) >= _TWICE_INFINITE).any():
        rounded = (np.minimum(bits & ~_SIGN, _LARGEST) + _HALF) | (bits & _SIGN)
    rounded >>= 16
    return rounded.astype(np.uint16)


def _stride(places: int, count: int) -> int:
    """Return a stride that takes about `count` of `places` and shares no power of 2 with a dimension."""
    stride = max(1, places // count)
    return stride - 1 if stride > 2 and stride % 2 == 0 else stride
