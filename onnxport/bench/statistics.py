"""Order statistics of timed runs: quantiles, an interval for the median, and floors.

The k-th smallest and the k-th largest of n independent observations contain the true median with a probability from
the binomial distribution (David and Nagaraja, *Order Statistics*, 7.1). Runs of one round follow each other and are
not independent; the rounds' medians, between which all others ran, count as such.

A floor is the time of a run without interference. Other programs only add time, so the low end of many runs belongs to
the model and the middle to the machine. Which low end depends on the model's threads:
one: the wall time of the fastest run. Where the fastest runs of three turns disagree, the CPU time, if that is less,
which excludes waiting for a core: that above a fifth of the turns, since the system's accounting is a few per cent off.
several: the wall time of the fastest run. CPU time says nothing here, since threads spin while they wait. Whether all
cores were free shows in the fastest runs, which kept that many of them busy (`Floor.cores`).
"""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from onnxport.bench.report import Floor

CONFIDENCE = 0.95
_SHARE = 0.2  # of the turns lie below the CPU time of a floor
_Z = 1.96  # 95 %
_ALIKE = 3  # turns whose fastest runs should agree
_FASTEST = 5  # runs


@dataclass(frozen=True)
class Interval:
    """An interval that contains the true median with probability `confidence`, which is 0 for one observation."""

    low: float
    high: float
    confidence: float


def median_interval(observations: Sequence[float]) -> Interval:
    """Return the narrowest interval of at least CONFIDENCE; the widest one of too few observations."""
    ordered = sorted(observations)
    rank, confidence = _rank(len(ordered))
    return Interval(ordered[rank - 1], ordered[-rank], confidence)


def _rank(count: int) -> tuple[int, float]:
    """Return the k for which the k-th smallest and k-th largest of `count` contain the median, and the probability."""
    rank, outside = 1, 2.0 ** (1 - count)
    while True:
        further = outside + 2.0 ** (1 - count) * math.comb(count, rank)
        if rank + 1 > count // 2 or further > 1 - CONFIDENCE:
            return rank, max(0.0, 1.0 - outside)
        rank, outside = rank + 1, further


def quantile(observations: Sequence[float], share: float) -> float:
    """Return the least observation that `share` of all do not exceed, without interpolation."""
    ordered = sorted(observations)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


median = statistics.median


def digits(value: float) -> float:
    """Round to five digits: more mean nothing."""
    return float(f"{value:.5g}")


def floor_of(turns: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Floor:
    """Return the floor of at least one turn, each the seconds and the CPU seconds (of all threads) of its runs."""
    fastest = sorted(min(times) for times, _ in turns)
    spent = sorted(sum(cpu) / len(cpu) for _, cpu in turns)
    runs = heapq.nsmallest(_FASTEST, (run for times, cpu in turns for run in zip(times, cpu, strict=True)))
    low, middle, high = _ranks(len(spent))
    return Floor(
        wall=_ms(fastest[0]),
        wall_next=_ms(fastest[min(_ALIKE, len(fastest)) - 1]),
        cpu=_ms(spent[middle]),
        cpu_low=_ms(spent[low]),
        cpu_high=_ms(spent[high]),
        cores=round(statistics.median(cpu / max(time, 1e-9) for time, cpu in runs), 3),
        turns=len(turns),
    )


def _ranks(count: int) -> tuple[int, int, int]:
    """Return the rank of the share in `count` sorted turns, between those of its (normal approximation's) interval."""
    middle, spread = _SHARE * count, _Z * math.sqrt(count * _SHARE * (1 - _SHARE))
    last = count - 1
    return (
        max(0, math.floor(middle - spread)),
        min(last, max(0, math.ceil(middle) - 1)),
        min(last, math.ceil(middle + spread)),
    )


def _ms(seconds: float) -> float:
    return float(f"{1000 * seconds:.6g}")
