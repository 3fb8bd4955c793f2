"""Figures of how far two arrays are apart; pure functions of float64 arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass
class ErrorSums:
    """Sums over elements, from which the means over several sets of inputs follow."""

    absolute: float = 0.0
    squared: float = 0.0
    signal: float = 0.0
    elements: int = 0

    def add(self, reference: Array, difference: Array) -> None:
        """Counts a set: the reference's finite values and the candidate's absolute differences from them."""
        self.absolute += float(difference.sum())
        self.squared += float(np.square(difference).sum())
        self.signal += float(np.square(reference).sum())
        self.elements += difference.size

    @property
    def mean_abs(self) -> float:
        return self.absolute / self.elements if self.elements else 0.0

    @property
    def sqnr_db(self) -> float | None:
        """Signal to quantization noise ratio in dB, 10 log10(sum ref^2 / sum diff^2); None without error or signal."""
        if not self.squared or not self.signal:
            return None
        return 10.0 * math.log10(self.signal / self.squared)


def scale_of(values: Array) -> float:
    """The largest finite magnitude; 0 for no values."""
    return float(np.max(np.abs(values), initial=0.0, where=np.isfinite(values)))
