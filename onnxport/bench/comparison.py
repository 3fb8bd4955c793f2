"""Rows beside those of a baseline: slower or not, when both were measured on a machine that does other things as well.

What is compared are floors (floors.py), corrected by how fast the machine was at either time (pace.py). A ratio above
the limit is an alarm only where the noise of both sides does not reach down to no change at all and where the model
had the cores that it had then; what lies above the limit and is less than sure is "unclear", which fails nothing. So
contention, which only adds, leads to more measuring and then to "unclear", never to an alarm.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnxport.bench.report import BenchReport, Floor, Row, Settings, Standard
from onnxport.core.errors import UsageError, printable

# What the interval has at the least on either side: turns are not as independent as the binomial distribution has it.
_LEAST_NOISE = 0.01
# Of what the machine's pace changed by, the part that a model need not follow: memory has another clock.
_UNKNOWN = 1 / 3
# Of the cores that a model wants at once, what has to be there; one of two that is gone half of the time is less.
AS_MANY = 0.85
# Turns below which nothing is settled: the fifth of them that count is a dozen.
ENOUGH = 60
# By which the fastest runs of a floor may differ that an alarm stands on.
ALIKE = 1.03


@dataclass(frozen=True)
class Conditions:
    """Of one measurement.

    Attributes:
        pace: milliseconds of a fixed piece of work; None where nobody took them.
        others: of the cores, what programs of others had; None where the system does not tell.
    """

    pace: float | None = None
    others: float | None = None

    @property
    def is_calm(self) -> bool:
        return self.others is not None and self.others < 0.1


@dataclass(frozen=True)
class Comparison:
    """Two floors of one row.

    Attributes:
        ratio: of the times, now over then.
        low, high: an interval of it.
        turns: how many there were now.
        had_cores: whether the model had all its cores at once, for long enough to tell.
        had_fewer: whether the baseline never had them.
    """

    ratio: float
    low: float
    high: float
    turns: int
    had_cores: bool = True
    had_fewer: bool = False

    def standard(self, limit: float) -> Standard:
        """What that is beside `limit`."""
        figures = {
            "limit": limit,
            "ratio": _digits(self.ratio),
            "low": _digits(self.low),
            "high": _digits(self.high),
        }
        times = f"{self.ratio:.2f} times as long as then ({self.low:.2f}-{self.high:.2f})"
        if self.had_fewer and self.ratio < 1 / limit:
            said = f"{times}: what it is compared with never had all its cores"
            return Standard(standing="unclear", said=said, **figures)
        if self.ratio <= limit:
            return Standard(standing="kept", said=times, **figures)
        if not self.had_cores:
            said = f"{times}, but other programs had the cores: too few runs had all of theirs"
            return Standard(standing="unclear", said=said, **figures)
        if self.low <= 1:
            return Standard(standing="unclear", said=f"{times}: the noise hides which", **figures)
        return Standard(standing="slower", said=f"{times} where {limit:g} is the most", **figures)

    def is_settled(self, limit: float) -> bool:
        """Whether more turns could not help: what is above the limit may still come down."""
        return self.turns >= ENOUGH and self.high < limit


def compare(
    now: Floor, then: Floor, at: Conditions, was: Conditions, *, threads: int | None = None
) -> Comparison:
    """Two floors of one row, each with what the machine was like.

    Args:
        threads: the model's; None for as many as there are cores.
    """
    single = threads == 1
    change = math.log(at.pace / was.pace) if at.pace and was.pace else 0.0
    mine, yours = _level(now, single), _level(then, single)
    ratio = math.log(mine.value / yours.value)
    below, above = math.hypot(mine.below, yours.above), math.hypot(mine.above, yours.below)
    doubt = _UNKNOWN * abs(change)
    centre = ratio - change
    return Comparison(
        ratio=math.exp(centre),
        low=math.exp(centre - max(_LEAST_NOISE, below) - doubt),
        high=math.exp(centre + max(_LEAST_NOISE, above) + doubt),
        turns=now.turns,
        had_cores=single or at.is_calm or had_cores(now, threads),
        had_fewer=not (single or was.is_calm or had_cores(then, threads)),
    )


def had_cores(floor: Floor, threads: int | None) -> bool:
    """Whether the fastest runs had a core for every thread, as far as there are such, and tell the same."""
    cores = os.cpu_count() or 1
    wanted = min(threads or cores, cores)
    return floor.turns >= ENOUGH and floor.cores >= AS_MANY * wanted and floor.wall_next <= ALIKE * floor.wall


@dataclass(frozen=True)
class _Level:
    """What a floor comes to, and by how much, in logarithms, it may be less or more."""

    value: float
    below: float
    above: float


def _level(floor: Floor, single: bool) -> _Level:
    # A system under load keeps its books of who had which core badly: they count where the clock has nothing better.
    if single and floor.cpu < floor.wall and floor.wall_next > ALIKE * floor.wall:
        return _Level(floor.cpu, _log(floor.cpu, floor.cpu_low), _log(floor.cpu_high, floor.cpu))
    # The fastest run is not yet the floor; how far it is from that, those that come next tell.
    return _Level(floor.wall, _log(floor.wall_next, floor.wall), 0.0)


class Baseline:
    """An earlier report, asked for the counterpart of a row: the same settings on the same path, or on a file of the
    same name where there is no other of that name."""

    def __init__(self, report: BenchReport, path: Path, limit: float) -> None:
        self.report, self.path, self.limit = report, path, limit
        self.was = Conditions(report.pace_ms, report.others)
        self._by_path = {(_plain(row.artifact), row.settings): row for row in report.rows}
        named = Counter((_name(row.artifact), row.settings) for row in report.rows)
        self._by_name = {
            (_name(row.artifact), row.settings): row
            for row in report.rows
            if named[_name(row.artifact), row.settings] == 1
        }

    def counterpart(self, artifact: str, settings: Settings) -> Row | None:
        """The row of the baseline that an artefact under these settings is compared with."""
        found = self._by_path.get((_plain(artifact), settings)) or self._by_name.get(
            (_name(artifact), settings)
        )
        if found is None and settings.batch is None:  # not known before the model was loaded
            settings = settings.model_copy(update={"batch": 1})
            found = self._by_path.get((_plain(artifact), settings)) or self._by_name.get(
                (_name(artifact), settings)
            )
        return found

    def compared(self, artifact: str, settings: Settings, floor: Floor, at: Conditions) -> Comparison | None:
        """None where the baseline has no figures."""
        then = self.counterpart(artifact, settings)
        if then is None or then.floor is None:
            return None
        return compare(floor, then.floor, at, self.was, threads=settings.threads)

    def standard(self, row: Row, at: Conditions) -> Standard | None:
        """Of a row that was measured; None of others, which have a reason of their own."""
        if row.floor is None:
            return None
        if found := self.compared(row.artifact, row.settings, row.floor, at):
            return found.standard(self.limit)
        then = self.counterpart(row.artifact, row.settings)
        said = "the baseline has no such row" if then is None else f"in the baseline it was {then.status}"
        return Standard(standing="new", limit=self.limit, said=said)

    def check(self, rows: Sequence[tuple[str, Settings]]) -> None:
        """Refuses a baseline that has none of these rows (UsageError): a gate that compares nothing passes all."""
        if rows and not any(self.counterpart(*each) for each in rows):
            known = sorted({row.artifact for row in self.report.rows})
            raise UsageError(
                f"{self.path} has nothing that this run measures",
                why=printable(f"it has {', '.join(known[:4]) or 'no rows'}, under its own settings"),
                fix="name the same artefacts with the same settings, or measure a new baseline",
            )

    def gone(self, rows: Sequence[Row]) -> Iterator[str]:
        """What was measured then and is not asked for now, in a sentence each."""
        met = {id(self.counterpart(row.artifact, row.settings)) for row in rows}
        for row in self.report.rows:
            if row.floor is not None and id(row) not in met:
                yield printable(
                    f"{row.artifact} is in the baseline and was not measured with these settings now"
                )


def _log(more: float, less: float) -> float:
    return math.log(more / less) if more > less > 0 else 0.0


def _plain(artifact: str) -> str:
    return os.path.normpath(artifact)


def _name(artifact: str) -> str:
    return os.path.basename(_plain(artifact))


def _digits(value: float) -> float:
    return float(f"{value:.4g}")
