"""The range of an activation's grid, read from its histogram. Every range contains 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from onnxport.core.arrays import Array

Range = tuple[float, float]

# The best ends of a normal distribution in 8 bits, in standard deviations.
DEVIATIONS = 4.0
# The share of the elements that a percentile range holds.
PERCENTILE = 0.9999
# Ends that the search tries: so many shares of the extreme at a time, the second time between neighbours of the best.
_SHARES = 64
_LEAST_SHARE = 0.02
# Equal bins of the distribution that the Kullback-Leibler divergence is taken of, and ends that are tried.
_EQUAL_BINS = 4096
_ENTROPY_SHARES = 100


class Distribution(Protocol):
    """A distribution of values: counts or weights."""

    @property
    def low(self) -> float: ...

    @property
    def high(self) -> float: ...

    def points(self) -> tuple[Array, Array]:
        """Return the values that occur, ascending, and the weight of each; float64."""


def find_range(histogram: Distribution, method: str, levels: int = 256) -> Range:
    """Return the ends of the grid, low <= 0 <= high.

    Args:
        histogram: of at least one element; extremes alone suffice for minmax.
        method: minmax, percentile, entropy or mse.
        levels: integers of the grid, 256 for 8 bits; its step is (high - low) / (levels - 1).
    """
    return _METHODS[method](histogram, levels)


def widen_to_deviations(histogram: Distribution, ends: Range) -> Range:
    """Return `ends`, or the mean and DEVIATIONS standard deviations on the sides where values occur, if that is more.

    A few dozen values do not show the ends of their distribution, and nothing behind an output makes up for what is
    cut off.
    """
    values, counts = histogram.points()
    total = float(counts.sum())
    if not total:
        return ends
    mean = float(counts @ values) / total
    deviation = math.sqrt(float(counts @ np.square(values - mean)) / total)
    low = mean - DEVIATIONS * deviation if histogram.low < 0 else 0.0
    high = mean + DEVIATIONS * deviation if histogram.high > 0 else 0.0
    return min(low, ends[0]), max(high, ends[1])


def minmax_range(histogram: Distribution, levels: int) -> Range:
    """Return the smallest and the largest value."""
    return min(histogram.low, 0.0), max(histogram.high, 0.0)


def percentile_range(histogram: Distribution, levels: int) -> Range:
    """Return the range without equal shares of elements at both ends, together 1 - PERCENTILE."""
    values, counts = histogram.points()
    below = np.cumsum(counts)
    tail = (1 - PERCENTILE) / 2 * below[-1]
    low = values[np.searchsorted(below, tail, side="right")]
    high = values[np.searchsorted(below, below[-1] - tail, side="left")]
    return min(float(low), 0.0), max(float(high), 0.0)


def mse_range(histogram: Distribution, levels: int) -> Range:
    """Return the range with the least mean squared error of rounding and clipping."""
    error = _SquaredError(histogram, levels)
    low, high = minmax_range(histogram, levels)
    if low == high:
        return low, high
    shares = np.linspace(_LEAST_SHARE, 1.0, _SHARES)
    best = error.least(low * shares, high * shares)
    step = shares[1] - shares[0]
    fine = np.linspace(-step, step, _SHARES + 1)
    lows = np.maximum(best[0] + low * fine, low)
    highs = np.minimum(best[1] + high * fine, high)
    return error.least(np.minimum(lows, 0.0), np.maximum(highs, 0.0))


class _SquaredError:
    """The error of a grid, from sums over the bins: no candidate iterates over bins.

    A value within the range and further than half a step from 0 has the error of an even distribution over one step,
    step^2 / 12. A value nearer to 0 has its own square, one beyond an end the square of its distance. Zeros cost
    nothing.
    """

    def __init__(self, histogram: Distribution, levels: int) -> None:
        self._steps = levels - 1
        values, counts = histogram.points()
        self._values, counts = values[values != 0], counts[values != 0]
        self._sums = _prefix_sums(self._values, counts)
        order = np.argsort(np.abs(self._values), kind="stable")
        self._distances = np.abs(self._values)[order]
        self._near = _prefix_sums(self._distances, counts[order])

    def least(self, lows: Array, highs: Array) -> Range:
        """Return the pair of ends with the least error; the widest of equals."""
        lows, highs = _distinct(lows), _distinct(highs)[::-1]
        step = (highs[None, :] - lows[:, None]) / self._steps
        near = np.searchsorted(self._distances, step.ravel() / 2).reshape(step.shape)
        first = np.searchsorted(self._values, lows, side="right")  # what lies at an end is on the grid
        last = np.searchsorted(self._values, highs)
        zeroth, linear, square = self._sums
        inside = zeroth[last][None, :] - zeroth[first][:, None] - self._near[0][near]
        rounding = np.maximum(inside, 0) * step**2 / 12 + self._near[2][near]
        below = square[first] - 2 * lows * linear[first] + lows**2 * zeroth[first]
        rest = [each[-1] - each[last] for each in (zeroth, linear, square)]
        above = rest[2] - 2 * highs * rest[1] + highs**2 * rest[0]
        error = rounding + np.maximum(below, 0)[:, None] + np.maximum(above, 0)[None, :]
        row, column = np.unravel_index(np.argmin(error), error.shape)
        return float(lows[row]), float(highs[column])


def _distinct(values: Array) -> Array:
    """Return the values without repetitions, ascending; numpy.unique imports numpy.ma, which takes 15 ms."""
    values = np.sort(values)
    return values[np.concatenate(([True], values[1:] != values[:-1]))]


def _prefix_sums(values: Array, counts: Array) -> tuple[Array, Array, Array]:
    """Return sums of counts, counts * value and counts * value^2 over the first n bins, for all n."""
    powers = (counts, counts * values, counts * values**2)
    zeroth, first, second = (np.concatenate(([0.0], np.cumsum(each))) for each in powers)
    return zeroth, first, second


def entropy_range(histogram: Distribution, levels: int) -> Range:
    """Return the range whose grid loses the least information by Kullback-Leibler divergence.

    Migacz, "8-bit inference with TensorRT", 2017: one threshold for both signs, where both go that far.
    """
    low, high = minmax_range(histogram, levels)
    if low == high:
        return low, high
    shares = np.linspace(1.0, _LEAST_SHARE, _ENTROPY_SHARES)
    edges = np.linspace(low, high, _EQUAL_BINS + 1)
    mass = np.diff(_distribution(histogram, edges))
    thresholds = shares * max(-low, high)
    losses = [_divergence(edges, mass, max(low, -each), min(high, each), levels) for each in thresholds]
    threshold = float(thresholds[int(np.argmin(losses))])
    return max(low, -threshold), min(high, threshold)


def _distribution(histogram: Distribution, edges: Array) -> Array:
    """Return the number of elements below each edge; a bin's elements are spread evenly."""
    values, counts = histogram.points()
    counts = np.where(values == 0, 0, counts)  # every grid has 0: what a Relu cut off would hide the rest
    borders = np.concatenate(([edges[0]], (values[1:] + values[:-1]) / 2, [edges[-1]]))
    return np.interp(edges, borders, np.concatenate(([0.0], np.cumsum(counts))))


def _divergence(edges: Array, mass: Array, low: float, high: float, levels: int) -> float:
    """Return KL(P || Q): P has the outside moved to the ends, Q is the inside on the grid."""
    first = int(np.searchsorted(edges, low, side="right")) - 1
    last = max(int(np.searchsorted(edges, high, side="left")), first + 1)
    inside = mass[first:last]
    if not inside.sum():
        return np.inf
    clipped = inside.copy()
    clipped[0] += mass[:first].sum()
    clipped[-1] += mass[last:].sum()
    cells = np.arange(len(inside)) * levels // len(inside)
    held, filled = np.bincount(cells, inside), np.bincount(cells, inside > 0)
    spread = (held / np.maximum(filled, 1))[cells] * (inside > 0)
    p, q = clipped / clipped.sum(), spread / spread.sum()
    seen = p > 0
    return float(np.sum(p[seen] * np.log(p[seen] / np.maximum(q[seen], 1e-12))))


_METHODS: Mapping[str, Callable[[Distribution, int], Range]] = {
    "minmax": minmax_range,
    "percentile": percentile_range,
    "entropy": entropy_range,
    "mse": mse_range,
}
