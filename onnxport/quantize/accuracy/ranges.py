"""Ranges of activations by relative error: the error of each place divided by its signal.

Some networks have a few places, often image corners, with values ten times as large that hardly matter. They dominate
a mean squared error. Here each place's error is divided by the mean square of its row, so that all count the same.
"""

from __future__ import annotations

import math

import numpy as np

from onnxport.core.arrays import Array
from onnxport.quantize.calibration.observers import BINS
from onnxport.quantize.calibration.ranges import Range, find_range

# Added to each row's mean square, as a share of all rows' mean: rows next to nothing do not count without limit.
FLOOR = 0.1
_UNIT = float(1 << 16)  # what a place of mean strength counts


def mse_range_of_rows(rows: Array, levels: int, *, is_relative: bool = True) -> Range:
    """Find the range with the least error of rounding and clipping.

    Args:
        rows: float32[rows, channels] of the activation, at least one.
        is_relative: relative to the signal of each place.
    """
    return find_range(WeightedHistogram(rows, FLOOR if is_relative else math.inf), "mse", levels)


def percentile_range_of_rows(rows: Array, levels: int) -> Range:
    """Return the range that holds all but a share of the values (calibration/ranges.py).

    Args:
        rows: float32[rows, channels] of the activation, at least one.
    """
    return find_range(WeightedHistogram(rows, math.inf), "percentile", levels)


def row_weights(rows: Array, floor: float = FLOOR) -> Array:
    """Return what each row counts: the inverse of its mean square, where that of a mean row is 1; float64[rows]."""
    squares = np.einsum("rc,rc->r", rows, rows, dtype=np.float64) / rows.shape[1]
    mean = math.fsum(squares) / len(squares)  # exact, so in any order
    return mean / (squares + floor * mean) if mean else np.ones(len(rows))


class WeightedHistogram:
    """A histogram of rows' values between `low` and `high`, each weighted by the strength of its row."""

    def __init__(self, rows: Array, floor: float = FLOOR) -> None:
        self.low, self.high = float(rows.min(initial=0.0)), float(rows.max(initial=0.0))
        # Whole numbers add up without rounding, so in any order.
        counts = np.rint(_UNIT * row_weights(rows, floor)) if math.isfinite(floor) else np.ones(len(rows))
        bins = (rows.view(np.uint32) >> 16).ravel()
        self._counts = np.bincount(bins, np.repeat(counts, rows.shape[1]), minlength=BINS)

    def points(self) -> tuple[Array, Array]:
        """Return the values that occur, ascending, and their weights; float64."""
        bins = np.flatnonzero(self._counts).astype(np.uint32)
        values = (bins << 16).view(np.float32).astype(np.float64)
        order = np.argsort(values, kind="stable")
        return values[order], self._counts[bins][order]
