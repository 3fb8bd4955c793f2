"""Ranges of activations by relative error: the error of each place divided by its signal.

Some networks have a few places, often image corners, with values ten times as large that hardly matter. They dominate
a mean squared error. Here each place's error is divided by the mean square of its row, so that all count the same.
"""

from __future__ import annotations

import math

import numpy as np

from onnxport.core.arrays import Array
from onnxport.quantize.calibration.ranges import Range, find_range

# Added to each row's mean square, as a share of all rows' mean: rows next to nothing do not count without limit.
FLOOR = 0.1
_UNIT = float(1 << 16)  # what a place of mean strength counts


def mse_range_of_rows(
    rows: Array, levels: int, *, is_relative: bool = True, halves: Array | None = None
) -> Range:
    """Find the range with the least error of rounding and clipping.

    Args:
        rows: float32[rows, channels] of the activation, at least one.
        is_relative: relative to the signal of each place.
        halves: the upper halves of `rows`, where these are known.
    """
    bins = rows.view(np.uint32) >> 16 if halves is None else halves
    return find_range(RowHistogram.weighted(rows, bins, FLOOR if is_relative else math.inf), "mse", levels)


def percentile_range_of_halves(halves: Array, levels: int) -> Range:
    """Return the range that holds all but a share of the values (calibration/ranges.py).

    Args:
        halves: uint16[rows, channels], the upper halves of the activation's float32, at least one.
    """
    return find_range(RowHistogram(np.bincount(halves.ravel())), "percentile", levels)


def row_weights(rows: Array, floor: float = FLOOR) -> Array:
    """Return what each row counts: the inverse of its mean square, where that of a mean row is 1; float64[rows]."""
    squares = np.einsum("rc,rc->r", rows, rows, dtype=np.float64) / rows.shape[1]
    mean = math.fsum(squares) / len(squares)  # exact, so in any order
    return mean / (squares + floor * mean) if mean else np.ones(len(rows))


class RowHistogram:
    """A histogram of rows' values.

    Args:
        counts: what the values of each upper half of a float32 count together, whole numbers.
    """

    def __init__(self, counts: Array) -> None:
        bins = np.flatnonzero(counts != 0)
        values = (bins.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        order = np.argsort(values, kind="stable")
        self._values, self._counts = values[order], counts[bins][order]
        self.low, self.high = min(float(self._values[0]), 0.0), max(float(self._values[-1]), 0.0)

    @classmethod
    def weighted(cls, rows: Array, bins: Array, floor: float) -> RowHistogram:
        """Weight each row by its strength; without limit, `floor` makes all the same.

        Args:
            bins: the upper half of each number.
        """
        # Whole numbers add up without rounding, so in any order.
        counts = np.rint(_UNIT * row_weights(rows, floor)) if math.isfinite(floor) else np.ones(len(rows))
        return cls(np.bincount(bins.ravel(), np.repeat(counts, rows.shape[1])))

    def points(self) -> tuple[Array, Array]:
        """Return the values that occur, ascending, and their weights."""
        return self._values, self._counts
