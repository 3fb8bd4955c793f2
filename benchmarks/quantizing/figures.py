"""The figures of one tool on one model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Self

from benchmarks.figures import Interval
from benchmarks.quantizing.cost import Cost
from benchmarks.quantizing.scoring import Score

OURS = "ours"


@dataclass
class Figures:
    """One tool on one model.

    Attributes:
        count: samples that it calibrated on.
        costs: of each round.
        score: of the file of the last round.
        speed_up: against the float model, where it was timed.
        peaks: MB by number of samples, where that was measured.
    """

    model: str
    tool: str
    count: int
    costs: list[Cost] = field(default_factory=list)
    score: Score = field(default_factory=Score)
    speed_up: Interval | None = None
    peaks: dict[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Self:
        """From what asdict made of it."""
        speed_up = Interval(**row["speed_up"]) if row["speed_up"] else None
        return cls(**row | {"costs": [Cost(**each) for each in row["costs"]], "score": Score(**row["score"]),
                            "speed_up": speed_up})  # fmt: skip

    @property
    def made(self) -> bool:
        return any(not each.said for each in self.costs)

    @property
    def cpu(self) -> float:
        """Median processor seconds of the rounds that ended well."""
        return median(each.cpu for each in self.costs if not each.said)

    @property
    def peak(self) -> float:
        return median(each.peak for each in self.costs if not each.said)

    @property
    def megabytes(self) -> float:
        return next(each.megabytes for each in self.costs if not each.said)

    def over(self, other: Self) -> Interval:
        """The ratio of processor seconds, round by round."""
        pairs = [
            (mine.cpu, its.cpu)
            for mine, its in zip(self.costs, other.costs, strict=False)
            if not mine.said + its.said
        ]
        return Interval.of([mine / its for mine, its in pairs])
