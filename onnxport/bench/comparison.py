"""The comparison of a row with its baseline on a machine that also runs other programs.

Floors (statistics.py) are compared, corrected by the machine's pace at both times (pace.py). A row is "slower" if its
ratio exceeds the limit, the ratio's interval excludes no change, and the model had the same cores as before. A less
certain ratio above the limit is "unclear", which fails nothing, unless contention cannot explain it. So contention
leads to more measuring, never to an alarm.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from onnxport.bench.report import Floor, Row, Spread, Standard, Standing

# Least half width of the interval, in logarithms: turns are less independent than the binomial distribution assumes.
_LEAST_NOISE = 0.01
# Share of the machine's change of pace that a model may not follow: memory has another clock.
_UNKNOWN = 1 / 3
# Share of the wanted cores that a model needs; one of two that is gone half of the time is less.
_CORES = 0.85
# Fewer turns decide nothing: a fifth of them, the ones that count, is a dozen.
ENOUGH_TURNS = 60
# A ratio that other programs do not explain: they lengthen the median about four times on two busy cores (MobileNetV2,
# docs/guide/bench-baseline.md), and the fastest run less.
_UNDENIABLE = 10.0
# Largest ratio of the fastest runs of a floor that agree.
_AGREEMENT = 1.03


@dataclass(frozen=True)
class Conditions:
    """The machine during one measurement."""

    pace: float | None = None  # milliseconds of a fixed piece of work; None where it was not measured
    others: float | None = None  # share of the cores that other programs used; None where unknown

    @property
    def is_calm(self) -> bool:
        return self.others is not None and self.others < 0.1


@dataclass(frozen=True)
class Comparison:
    """The comparison of two floors of one row."""

    ratio: float  # of the times, now over before
    # low, high: an interval of the ratio.
    low: float
    high: float
    turns: int  # number of turns now
    had_cores: bool = True  # whether the model had all its cores at once for enough runs
    baseline_lacked_cores: bool = False  # whether the baseline never had them

    def standard(self, limit: float) -> Standard:
        """Return the result for `limit`."""
        standing, said = self._decide(limit)
        times = f"{self.ratio:.2f} times as long as before ({self.low:.2f}-{self.high:.2f})"
        ratio, low, high = (float(f"{each:.4g}") for each in (self.ratio, self.low, self.high))
        return Standard(standing=standing, limit=limit, ratio=ratio, low=low, high=high, said=times + said)

    def _decide(self, limit: float) -> tuple[Standing, str]:
        if self.baseline_lacked_cores and self.ratio < 1 / limit:
            return "unclear", ", but the baseline never had all its cores"
        if self.ratio <= limit:
            return "kept", ""
        if not self.had_cores and self.low < _UNDENIABLE:
            return "unclear", ", but other programs used the cores: too few runs had all of them"
        if self.low <= 1:
            return "unclear", ", which may be noise"
        return "slower", f", the limit is {limit:g}"

    def is_decided(self, limit: float) -> bool:
        """Return whether more turns cannot change the result: a ratio above the limit may still decrease."""
        return self.turns >= ENOUGH_TURNS and self.high < limit


def compare(
    now: Floor, then: Floor, at: Conditions, was: Conditions, *, threads: int | None = None
) -> Comparison:
    """Compare two floors of one row, each with its conditions; `threads` is None for as many as there are cores."""
    single = threads == 1
    change = math.log(at.pace / was.pace) if at.pace and was.pace else 0.0
    new, old = _level(now, single), _level(then, single)
    ratio = math.log(new.value / old.value)
    below, above = math.hypot(new.below, old.above), math.hypot(new.above, old.below)
    doubt = _UNKNOWN * abs(change)
    centre = ratio - change
    return Comparison(
        ratio=math.exp(centre),
        low=math.exp(centre - max(_LEAST_NOISE, below) - doubt),
        high=math.exp(centre + max(_LEAST_NOISE, above) + doubt),
        turns=now.turns,
        had_cores=single or at.is_calm or had_cores(now, threads),
        baseline_lacked_cores=not (single or was.is_calm or had_cores(then, threads)),
    )


def compare_spreads(now: Spread, then: Spread) -> Comparison:
    """Compare the medians of two rows of which one has no floor: on a device, or measured elsewhere."""
    centre, below, above = now.median / then.median, now.low / then.high, now.high / then.low
    low, high = min(below, centre * math.exp(-_LEAST_NOISE)), max(above, centre * math.exp(_LEAST_NOISE))
    return Comparison(ratio=centre, low=low, high=high, turns=len(now.rounds))


def compare_rows(now: Row, then: Row, at: Conditions, was: Conditions) -> Comparison | None:
    """Compare two measured rows, by their floors where both have one; None where one was not measured."""
    if now.floor is not None and then.floor is not None:
        return compare(now.floor, then.floor, at, was, threads=now.settings.threads)
    if now.latency is not None and then.latency is not None:
        return compare_spreads(now.latency, then.latency)
    return None


def had_cores(floor: Floor, threads: int | None) -> bool:
    """Return whether the fastest runs agree and had a core for every thread, as far as there are as many."""
    cores = os.cpu_count() or 1
    wanted = min(threads or cores, cores)
    return (
        floor.turns >= ENOUGH_TURNS
        and floor.cores >= _CORES * wanted
        and floor.wall_next <= _AGREEMENT * floor.wall
    )


@dataclass(frozen=True)
class _Level:
    """A floor's time, and by how much, in logarithms, it may be less or more."""

    value: float
    below: float
    above: float


def _level(floor: Floor, single: bool) -> _Level:
    # Under load the system's accounting of cores is unreliable: use CPU time only where wall times disagree.
    if single and floor.cpu < floor.wall and floor.wall_next > _AGREEMENT * floor.wall:
        return _Level(floor.cpu, _log(floor.cpu, floor.cpu_low), _log(floor.cpu_high, floor.cpu))
    # The fastest run may lie above the floor; its distance from the next ones estimates by how much.
    return _Level(floor.wall, _log(floor.wall_next, floor.wall), 0.0)


def _log(more: float, less: float) -> float:
    return math.log(more / less) if more > less > 0 else 0.0
