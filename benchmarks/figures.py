"""Statistics of repeated measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

_RESAMPLES = 10_000


@dataclass(frozen=True)
class Interval:
    """A median and the interval that holds the true one with the confidence asked for."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], *, confidence: float = 0.95, seed: int = 0) -> Self:
        """The median of `values` with its percentile bootstrap interval; the same values give the same interval.

        The bootstrap asks nothing of the distribution, and timings have long tails.
        """
        if not values:
            raise ValueError("no values, no median")
        measured = np.asarray(values, np.float64)
        drawn = np.random.default_rng(seed).integers(0, measured.size, (_RESAMPLES, measured.size))
        medians = np.median(measured[drawn], axis=1)
        tail = (1 - confidence) / 2
        low, high = np.quantile(medians, (tail, 1 - tail))
        return cls(float(np.median(measured)), float(low), float(high))

    def __str__(self) -> str:
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"
