"""The chart of size against latency against accuracy: latency to the right, size upwards, accuracy as a ring.

Smaller and faster artefacts lie lower left. Of one artefact under several settings the fastest has a number, the
others are dots.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from onnxport.reports import phrases
from onnxport.reports.charts import FLOOR, LEFT, RIGHT, TOP, Scatter, Spot, logarithmic_axis, size_axis

# dB at which the ring is closed: beyond the loss of float16 rounding, accuracy decides nothing.
FULL_RING_DB = 60.0

# Times the smallest size: below, all marks lie on one line.
_DISTINCT = 1.01

Standing = Literal["front", "accurate", "dominated"]


@dataclass(frozen=True)
class Choice:
    """An artefact that one could ship, and its cost.

    Attributes:
        artifact: equal for marks that are settings of one artefact.
        ms: time of a run; `low` and `high` are its interval, if known.
        sqnr: dB; infinite without error, None where it was not measured.
        alarm: it may not be shipped.
    """

    number: int
    artifact: str
    name: str
    size: int
    ms: float
    title: str
    sqnr: float | None = None
    low: float | None = None
    high: float | None = None
    alarm: bool = False

    @property
    def ring(self) -> float | None:
        """SQNR as a percentage of FULL_RING_DB, at most 100; None where it is not known."""
        if self.sqnr is None:
            return None
        return 0.0 if math.isnan(self.sqnr) else 100 * min(max(self.sqnr, 0.0), FULL_RING_DB) / FULL_RING_DB


def draw(choices: Sequence[Choice], x_title: str) -> Scatter | None:
    """Return the chart; None without choices, and for artefacts of one size: bars of times say the same."""
    sizes = [each.size for each in choices]
    if not choices or (len({each.artifact for each in choices}) > 1 and max(sizes) < _DISTINCT * min(sizes)):
        return None
    times = [ms for each in choices for ms in (each.low, each.ms, each.high) if ms is not None]
    x_axis = logarithmic_axis(times, LEFT + 16, RIGHT - 16, phrases.duration)
    y_axis = size_axis([each.size for each in choices], FLOOR - 16, TOP + 10)
    fastest: dict[str, Choice] = {}
    for each in choices:
        fastest[each.artifact] = min(fastest.get(each.artifact, each), each, key=lambda one: one.ms)
    spots = []
    for each in choices:
        is_fastest = fastest[each.artifact] is each
        whisker = None
        if is_fastest and each.low is not None and each.high is not None:
            whisker = x_axis.place(each.low), x_axis.place(each.high)
        spots.append(
            Spot(
                x=x_axis.place(each.ms),
                y=y_axis.place(each.size),
                number=each.number,
                name=each.name if is_fastest else "",
                title=phrases.text(each.title),
                ring=None if each.ring is None else round(each.ring, 1),
                whisker=whisker,
                faint=standing(each, choices) == "dominated",
                alarm=each.alarm,
            )
        )
    pairs = zip(spots, choices, strict=True)
    front = sorted({(spot.x, spot.y) for spot, each in pairs if standing(each, choices) == "front"})
    return Scatter(
        spots=tuple(spots),
        x_ticks=x_axis.ticks,
        y_ticks=y_axis.ticks,
        x_title=x_title,
        y_title="size on disk",
        title=f"Size against latency against accuracy: {phrases.count(len(spots), 'mark')}; the table has the figures",
        line=" ".join(f"{x},{y}" for x, y in front) if len(front) > 1 else "",
    )


def standing(choice: Choice, choices: Sequence[Choice]) -> Standing:
    """Return "front" if no choice dominates it in size and latency, "accurate" if each that does is less accurate."""
    better = [each for each in choices if _dominates(each, choice)]
    if not better:
        return "front"
    return "dominated" if any(_is_as_accurate(each, choice) for each in better) else "accurate"


def _dominates(one: Choice, other: Choice) -> bool:
    """Return whether `one` is smaller and not slower, or not larger and faster beyond the noise of both."""
    if one.ms > other.ms or one.size > other.size:
        return False
    is_sure = (one.high or one.ms) < (other.low or other.ms)
    return one.size < other.size or is_sure or (one.ms < other.ms and one.artifact == other.artifact)


def _is_as_accurate(one: Choice, other: Choice) -> bool:
    """Compare accuracies; two that were not measured count as equal."""
    if one.ring is None or other.ring is None:
        return one.ring is other.ring
    return one.ring >= other.ring
