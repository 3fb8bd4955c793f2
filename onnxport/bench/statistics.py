"""What many timed runs say: order statistics, and an interval for the median that no distribution is assumed for.

The k-th smallest and the k-th largest of n independent observations hold the true median with a probability that the
binomial distribution tells (David and Nagaraja, *Order Statistics*, 7.1). Runs of one round follow each other and are
no independent observations; the rounds' medians, between which everybody else ran, are taken for such.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """Holds the true median with probability `confidence`, which is 0 of one observation."""

    low: float
    high: float
    confidence: float


def median_interval(observations: Sequence[float], wanted: float = CONFIDENCE) -> Interval:
    """The narrowest interval of the `wanted` probability or more; the widest there is of too few observations."""
    ordered = sorted(observations)
    rank, confidence = _rank(len(ordered), wanted)
    return Interval(ordered[rank - 1], ordered[-rank], confidence)


def _rank(count: int, wanted: float) -> tuple[int, float]:
    """The k for which the k-th smallest and k-th largest of `count` hold the median, and how probably."""
    rank, outside = 1, 2.0 ** (1 - count)
    while True:
        further = outside + 2.0 ** (1 - count) * math.comb(count, rank)
        if rank + 1 > count // 2 or further > 1 - wanted:
            return rank, max(0.0, 1.0 - outside)
        rank, outside = rank + 1, further


def quantile(observations: Sequence[float], share: float) -> float:
    """The least observation that `share` of all do not exceed: one that was measured, not a value between two."""
    ordered = sorted(observations)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


median = statistics.median
