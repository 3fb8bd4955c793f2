"""Observers of one tensor over all samples: they merge to the same bits in any order and division.

State consists of integers and exact extremes, so that adding states is associative and commutative.
"""

from __future__ import annotations

import math
from typing import Any, Protocol, Self

import numpy as np

from onnxport.core.arrays import Array

# Every float32 falls into the bin that its upper 16 bits name: sign, exponent and 7 bits of the mantissa.
BINS = 1 << 16
# About so many elements of a tensor tell its range as well as all do: on EfficientNet-Lite0, MobileNetV2, nudenet and
# PP-OCRv4's detector the SQNR of the quantized model differs by what it differs between any two such parts.
_ENOUGH = 1 << 20
_LEAST_PART, _LARGEST_PART = 1 << 10, 1 << 16
# Added to -0 it makes 0: which of the two is the lesser depends on their order.
_ZERO = np.float32(0)
# Elements that wait to be counted together: clearing and adding 65536 bins costs as much as counting so many.
_WAITING = 1 << 16


def elements_per_sample(samples: int) -> int:
    """Return how many elements of a tensor a histogram needs from each sample."""
    return min(max(_ENOUGH // max(samples, 1), _LEAST_PART), _LARGEST_PART)


class Observer(Protocol):
    """Observes one tensor; picklable, so that it can return from another process."""

    def observe(self, values: Array, sample: int) -> None:
        """Add the tensor of one sample, of any float dtype and shape; NotFiniteError for NaN or infinity."""

    def merge(self, other: Self) -> None:
        """Add what `other`, of the same kind, observed of the same tensor on other samples."""


class NotFiniteError(ValueError):
    """A tensor holds NaN or infinity; the message names it."""


class Histogram:
    """Counts of values to a relative precision of 2^-8, and the exact extremes.

    A bin is the upper 16 bits of the float32, so it needs no range beforehand and two histograms add up. Of tensors
    with more than `elements` values each sample gives a part, at a distance that shares no factor with a dimension.
    Its start follows from the sample's extremes, so that samples differ in it and their order does not matter.

    Attributes:
        low, high: the least and greatest value of all elements; inf and -inf before the first.
        elements: the most that a sample adds to the bins; 0 to record extremes only.
    """

    def __init__(self, elements: int = _LARGEST_PART) -> None:
        self.low, self.high, self.elements = math.inf, -math.inf, elements
        self._counts = np.zeros(BINS if elements else 0, np.int64)
        self._waiting: list[Array] = []
        self._waiting_size = 0

    def observe(self, values: Array, sample: int) -> None:
        """See Observer."""
        if not values.size:
            return
        flat = np.ascontiguousarray(values, np.float32).reshape(-1)
        low, high = flat.min() + _ZERO, flat.max() + _ZERO
        if not (np.isfinite(low) and np.isfinite(high)):
            raise NotFiniteError("NaN" if np.isnan(low) else "infinity")
        self.low, self.high = min(self.low, float(low)), max(self.high, float(high))
        if not self.elements:
            return
        stride = stride_of(flat.size, self.elements)
        start = (int(low.view(np.uint32)) + int(high.view(np.uint32))) % stride
        self._waiting.append(_upper_bits(flat)[start::stride].copy())
        self._waiting_size += self._waiting[-1].size
        if self._waiting_size >= _WAITING:
            self._count()

    def merge(self, other: Histogram) -> None:
        """See Observer."""
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self._add(other.counts)

    @property
    def counts(self) -> Array:
        """int64[65536]: elements by the upper 16 bits of their float32; int64[0] where extremes alone are recorded."""
        self._count()
        return self._counts

    def points(self) -> tuple[Array, Array]:
        """Return the values that occur (the middle of each bin), ascending, and their counts; float64."""
        bins = np.flatnonzero(self.counts).astype(np.uint32)
        middles = ((bins << 16) | 0x8000).view(np.float32).astype(np.float64)
        middles = np.clip(middles, self.low, self.high)
        # The bin of zero and the one of what is next to it have the middle 0.
        middles[(bins & 0x7FFF) == 0] = 0.0
        order = np.argsort(middles, kind="stable")
        return middles[order], self._counts[bins][order].astype(np.float64)

    def _count(self) -> None:
        if self._waiting:
            waiting, self._waiting, self._waiting_size = np.concatenate(self._waiting), [], 0
            self._add(np.bincount(waiting))

    def _add(self, counts: Array) -> None:
        found = np.flatnonzero(counts != 0)  # ten times as fast as to look for integers
        self._counts[found] += counts[found]

    def __getstate__(self) -> tuple[Any, ...]:
        found = np.flatnonzero(self.counts)
        return self.low, self.high, self.elements, found.astype(np.uint16), self._counts[found]

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.__init__(state[2])  # type: ignore[misc] # pickle makes it without
        self.low, self.high = state[:2]
        self._counts[state[3]] = state[4]


class ChannelMeans:
    """The mean of every channel along `axis`.

    The float32 sum of a sample's channel is added without rounding: its mantissa goes to one of 18 integers, each for
    16 exponents (a small superaccumulator, Kulisch 1981).
    """

    _EXPONENTS = 16  # exponents per integer: 24 + 15 bits leave 2^24 samples room in 64
    _LEAST = -149  # the exponent of float32's last bit
    _MOST_WAITING = 64  # sums that wait to be added together

    def __init__(self, axis: int) -> None:
        self.axis = axis
        self.count = 0  # elements per channel
        self._totals = np.zeros((0, 0), np.int64)
        self._waiting: list[Array] = []

    def observe(self, values: Array, sample: int) -> None:
        """See Observer."""
        axis = self.axis % values.ndim
        channels = values.shape[axis]
        if not values.size:
            return
        grouped = values.reshape(math.prod(values.shape[:axis]), channels, -1)
        # Along the last axis NumPy adds pairwise; across the others it does not, so these get more bits.
        sums = grouped.sum(axis=2, dtype=np.float32) if grouped.shape[2] > 1 else grouped[:, :, 0]
        sums = (sums.sum(axis=0, dtype=np.float64) if len(sums) > 1 else sums[0]).astype(np.float32)
        if not np.isfinite(sums).all():
            raise NotFiniteError("NaN or infinity, or a sum that float32 does not hold")
        self.count += values.size // channels
        self._waiting.append(sums)
        if len(self._waiting) >= self._MOST_WAITING:
            self._add_waiting()

    def merge(self, other: ChannelMeans) -> None:
        """See Observer."""
        if other.count:
            own, others = self._add_waiting(), other._add_waiting()
            self._totals = own + others if self.count else others
            self.count += other.count

    def _add_waiting(self) -> Array:
        """Return the totals, with the sums that wait."""
        if self._waiting:
            sums = np.stack(self._waiting)
            self._waiting = []
            _, exponents = np.frexp(sums)
            # sum = integer * 2^(place + _LEAST); what lies below float32's normal range has zeros at its end
            places = np.maximum(exponents.astype(np.int64) - 24 - self._LEAST, 0)
            integers = np.ldexp(sums.astype(np.float64), -(places + self._LEAST)).astype(np.int64)
            if not self._totals.size:
                self._totals = np.zeros((sums.shape[1], 278 // self._EXPONENTS + 1), np.int64)
            at = (np.broadcast_to(np.arange(sums.shape[1]), sums.shape), places // self._EXPONENTS)
            np.add.at(self._totals, at, integers << (places % self._EXPONENTS))
        return self._totals

    def means(self) -> Array:
        """float64[channels]; empty before the first sample."""
        totals = self._add_waiting()
        scales = [1 << (self._EXPONENTS * part) for part in range(totals.shape[1])]
        exact = [sum(map(int.__mul__, row, scales)) for row in totals.tolist()]
        unit = 1 << -self._LEAST
        return np.array(
            [total / (unit * self.count) for total in exact]
        )  # Python rounds such a quotient once

    def __getstate__(self) -> dict[str, Any]:
        self._add_waiting()
        return self.__dict__


class ChannelExtremes:
    """The least and greatest value of every channel along `axis`."""

    def __init__(self, axis: int) -> None:
        self.axis = axis
        self._ends: tuple[Array, Array] | None = None

    def observe(self, values: Array, sample: int) -> None:
        """See Observer."""
        if not values.size:
            return
        axis = self.axis % values.ndim
        grouped = values.reshape(math.prod(values.shape[:axis]), values.shape[axis], -1)
        low, high = grouped.min(axis=2).min(axis=0), grouped.max(axis=2).max(axis=0)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise NotFiniteError("NaN or infinity")
        self._add(low.astype(np.float32) + _ZERO, high.astype(np.float32) + _ZERO)

    def merge(self, other: ChannelExtremes) -> None:
        """See Observer."""
        if other._ends is not None:
            self._add(*other._ends)

    def extremes(self) -> tuple[Array, Array]:
        """Return the least and greatest values, float32[channels] each; empty before the first sample."""
        return (np.zeros(0, np.float32),) * 2 if self._ends is None else self._ends

    def _add(self, low: Array, high: Array) -> None:
        self._ends = (
            (low, high)
            if self._ends is None
            else (np.minimum(self._ends[0], low), np.maximum(self._ends[1], high))
        )


def _upper_bits(flat: Array) -> Array:
    """uint16[n] of a contiguous float32[n]."""
    return flat.view("<u2")[1::2] if flat.dtype.byteorder != ">" else flat.view(">u2")[::2]


def stride_of(size: int, most: int) -> int:
    """Return a stride that takes at most `most` of `size` elements and has no factor in common with `size`."""
    stride = -(-size // most)
    while math.gcd(stride, size) > 1:
        stride += 1
    return stride
