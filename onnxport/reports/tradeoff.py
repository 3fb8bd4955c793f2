"""Size against latency against accuracy, as pages draw it: where marks, front and labels lie, in units of the SVG.

Latency goes across and size up, so what is better lies lower and further to the left; a ring around each mark is closed
as far as its accuracy reaches. Marks of one artefact under several settings lie on one level, and the fastest of them
has the label.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from onnxport.reports import wording
from onnxport.reports.axes import amounts
from onnxport.reports.charts import WIDTHS, Tick
from onnxport.reports.labels import Label, Line, Room, placed

HEIGHTS = {"phone": 300, "desktop": 400}
# dB at which the ring is closed: beyond what float16's rounding leaves, nobody chooses by accuracy.
ENOUGH = 60.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 16, 26, 34
_LARGE, _SMALL = 9.0, 4.0  # half a mark's width

Standing = Literal["front", "worth", "beaten"]


@dataclass(frozen=True)
class Choice:
    """What one could ship, and what it costs.

    Attributes:
        number: of its label, where there is no room for names.
        artifact: marks with the same one are settings of it.
        ms: what it takes; `low` and `high` an interval of it, if one is known.
        sqnr: dB; infinite without error, None where nobody asked.
        says: when it is pointed at.
        alarm: whether it may not be shipped.
        origin: whether it is what the others were made of.
    """

    number: int
    artifact: str
    name: str
    size: int
    ms: float
    says: str
    sqnr: float | None = None
    low: float | None = None
    high: float | None = None
    alarm: bool = False
    origin: bool = False

    @property
    def reached(self) -> float | None:
        """Accuracy as a share of what anybody chooses by, 0 to 1; None where it is not known."""
        if self.sqnr is None:
            return None
        return 0.0 if math.isnan(self.sqnr) else min(max(self.sqnr, 0.0), ENOUGH) / ENOUGH


@dataclass(frozen=True)
class Spot:
    """A mark; `ring` is in hundredths, `whisker` the ends of the interval of one with a label."""

    x: float
    y: float
    reach: float
    number: int
    says: str
    standing: Standing
    ring: float | None
    whisker: tuple[float, float] | None
    alarm: bool
    origin: bool


@dataclass(frozen=True)
class Plot:
    """All of it.

    Attributes:
        front: the corners of the line below and left of which nothing lies.
        numbered: whether the labels are numbers.
        key: name by number.
    """

    width: int
    height: int
    spots: tuple[Spot, ...]
    front: str
    labels: tuple[Label, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    says: str
    numbered: bool
    key: tuple[tuple[int, str], ...]
    left: float = _LEFT

    @property
    def floor(self) -> float:
        return self.height - _BOTTOM


def plots(choices: Sequence[Choice]) -> dict[str, Plot]:
    """A drawing for each page of WIDTHS; none of nothing."""
    return {page: _plot(choices, page) for page in WIDTHS} if choices else {}


def _plot(choices: Sequence[Choice], page: str) -> Plot:
    width, height = WIDTHS[page], HEIGHTS[page]
    ends = [each for choice in choices for each in (choice.low, choice.ms, choice.high) if each is not None]
    across, x_ticks = amounts(ends, _LEFT + 16, width - _RIGHT - 16, wording.about_duration, gap=44)
    sizes = [choice.size for choice in choices]
    down, y_ticks = amounts(sizes, height - _BOTTOM - 18, _TOP + 14, wording.about_size, gap=22)
    leading = _leading(choices)
    spots = []
    for choice in choices:
        whisker = None
        if choice.number in leading and choice.low is not None and choice.high is not None:
            whisker = (round(across(choice.low), 1), round(across(choice.high), 1))
        reached = choice.reached
        spots.append(
            Spot(
                x=round(across(choice.ms), 1),
                y=round(down(choice.size), 1),
                reach=_LARGE if choice.number in leading else _SMALL,
                number=choice.number,
                says=wording.text(choice.says),
                standing=standing(choice, choices),
                ring=None if reached is None else round(100 * reached, 1),
                whisker=whisker,
                alarm=choice.alarm,
                origin=choice.origin,
            )
        )
    large = [spot for spot in spots if spot.number in leading]
    small = [spot for spot in spots if spot.number not in leading]
    corners = _corners([spot for spot in spots if spot.standing == "front"], width - _RIGHT, _TOP)
    names = {choice.number: choice.name for choice in choices if choice.number in leading}
    room = Room(_LEFT, width - 2, height - _BOTTOM)
    whiskers = [_line(spot) for spot in large if spot.whisker is not None]
    # What is drawn besides is left clear as far as there is room.
    clear: list[list[Line]] = [[*pairwise(corners), *whiskers], whiskers, []]
    tried = (placed(large, names, room, small, lines) for lines in clear)
    labels = next(filter(None, tried), ())
    return Plot(
        width=width,
        height=height,
        spots=tuple(spots),
        front=" ".join(f"{x},{y}" for x, y in corners),
        labels=labels or placed(large, None, room, small),
        x_ticks=tuple(x_ticks),
        y_ticks=tuple(y_ticks),
        says=f"Size against latency against accuracy: {wording.count(len(spots), 'mark')}; the table has the figures",
        numbered=not labels,
        key=tuple(names.items()),
    )


def _line(spot: Spot) -> Line:
    left, right = spot.whisker or (spot.x, spot.x)
    return (left, spot.y), (right, spot.y)


def standing(choice: Choice, choices: Sequence[Choice]) -> Standing:
    """Whether nothing is both smaller and faster, or nothing is that and as accurate, or something is."""
    beaten_by = [each for each in choices if _beats(each, choice)]
    if not beaten_by:
        return "front"
    return "beaten" if any(_as_accurate(each, choice) for each in beaten_by) else "worth"


def _beats(one: Choice, other: Choice) -> bool:
    """Whether it is smaller and no slower, or faster beyond the noise of both and no larger."""
    if one.ms > other.ms or one.size > other.size:
        return False
    sure = (one.high or one.ms) < (other.low or other.ms)
    return one.size < other.size or sure or (one.ms < other.ms and one.artifact == other.artifact)


def _as_accurate(one: Choice, other: Choice) -> bool:
    """Where nobody asked about both, nothing speaks against it."""
    if one.reached is None or other.reached is None:
        return one.reached is other.reached
    return one.reached >= other.reached


def _leading(choices: Sequence[Choice]) -> set[int]:
    """The numbers of each artefact's fastest mark."""
    fastest: dict[str, Choice] = {}
    for choice in choices:
        best = fastest.setdefault(choice.artifact, choice)
        if choice.ms < best.ms:
            fastest[choice.artifact] = choice
    return {choice.number for choice in fastest.values()}


def _corners(front: Sequence[Spot], right: float, top: float) -> list[tuple[float, float]]:
    """Steps from the fastest to the smallest: down the drawing y grows, and sizes shrink."""
    ordered: list[Spot] = []
    for spot in sorted(front, key=lambda spot: (spot.x, -spot.y)):
        if not ordered or spot.y > ordered[-1].y:
            ordered.append(spot)
    if not ordered:
        return []
    corners = [(ordered[0].x, top)]
    for spot, following in pairwise(ordered):
        corners += [(spot.x, spot.y), (following.x, spot.y)]
    last = ordered[-1]
    return [*corners, (last.x, last.y), (right, last.y)]
