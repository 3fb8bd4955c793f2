"""Size against accuracy, as the HTML report draws it: where marks and labels lie, in the units of the SVG.

A label is placed where it touches no mark, no other label and no line that joins a label to its mark. Where the names
of all do not fit, numbers stand in their place, which the page explains.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from onnxport.pipelines.reports import wording
from onnxport.pipelines.reports.charts import WIDTHS, Tick
from onnxport.pipelines.reports.pipeline.matrix import Row, sqnr_of

HEIGHTS = {"phone": 280, "desktop": 360}
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 16, 16, 34
_MARK = 5.0  # half a mark's width
_LINE = 12.0  # a line of text
_LONGEST = 30  # characters of a name
_RATIO = 5.0  # of sizes: beyond it their axis is logarithmic
_TOGETHER = 7.0  # marks this near share a label
# Sixteenths of a turn, from the right counter-clockwise, at which text grows away from its mark to either side.
_RIGHT_OF, _LEFT_OF = (14, 15, 0, 1, 2), (6, 7, 8, 9, 10)

Point = tuple[float, float]


@dataclass(frozen=True)
class Spot:
    """A mark; one of a cell that was not delivered looks otherwise, not only in its colour."""

    x: float
    y: float
    says: str
    number: int
    alarm: bool


@dataclass(frozen=True)
class Label:
    """Text anchored at x with its base line at y, and the line to its mark where it is apart from it."""

    x: float
    y: float
    text: str
    anchor: str
    line: tuple[Point, Point] | None = None


@dataclass(frozen=True)
class Plot:
    """All of it; `numbered` where the labels are numbers, `left_out` the cells that have no figures."""

    width: int
    height: int
    spots: tuple[Spot, ...]
    labels: tuple[Label, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    says: str
    numbered: bool
    left_out: int

    @property
    def floor(self) -> float:
        return self.height - _BOTTOM


def plot(rows: Sequence[Row], page: str) -> Plot | None:
    """The plot for a page of WIDTHS; None where no cell has both figures."""
    found = [(row, row.made.size, sqnr_of(row.telling)) for row in rows if row.made and row.telling]
    if not found:
        return None
    width, height = WIDTHS[page], HEIGHTS[page]
    across, x_ticks = _sizes([size for _, size, _ in found], _LEFT + 12, width - _RIGHT - 12)
    down, y_ticks = _accuracies([sqnr for *_, sqnr in found], height - _BOTTOM - 12, _TOP)
    spots = tuple(
        Spot(
            round(across(size), 1),
            round(down(sqnr), 1),
            wording.text(f"{row.cell.name}: {row.size}, {row.accuracy}, {row.cell.verdict}"),
            row.number,
            row.cell.path is None,
        )
        for row, size, sqnr in found
    )
    names = {row.number: row.cell.name for row, *_ in found}
    labels = _placed(spots, names, width, height)
    return Plot(
        width=width,
        height=height,
        spots=spots,
        labels=labels or _placed(spots, None, width, height),
        x_ticks=tuple(x_ticks),
        y_ticks=tuple(y_ticks),
        says=f"Size against accuracy of {wording.count(len(spots), 'artefact')}; the table above has the figures",
        numbered=not labels,
        left_out=len(rows) - len(spots),
    )


Axis = tuple[Callable[[float], float], list[Tick]]


def _sizes(sizes: Sequence[int], left: float, right: float) -> Axis:
    """From size to x, logarithmic where sizes are far apart."""
    low, high = max(min(sizes), 1), max(*sizes, 1)
    far = high / low > _RATIO
    scaled: Callable[[float], float] = (lambda size: math.log10(max(size, 1))) if far else float
    start, end = _widened(scaled(low), scaled(high), 0.05 * high or 1.0)

    def across(size: float) -> float:
        return left + (scaled(size) - start) / (end - start) * (right - left)

    ticks = _decades(low, high) if far else list(_rounds(start, end, int((right - left) // 80)))
    shown = [Tick(round(across(at), 1), wording.human_size(int(at))) for at in ticks if at > 0]
    return across, _apart(shown, left, right)


def _accuracies(found: Sequence[float], floor: float, top: float) -> Axis:
    """From SQNR in dB to y: what has no error lies on a line above all others, what is not finite on one below."""
    finite = [each for each in found if math.isfinite(each)]
    exact, broken = math.inf in found, -math.inf in found
    first, last = floor - 26 * broken, top + 26 * exact
    low, high = _widened(min(finite), max(finite), 5.0) if finite else (0.0, 1.0)

    def down(sqnr: float) -> float:
        if not math.isfinite(sqnr):
            return top if sqnr > 0 else floor
        return first - (sqnr - low) / (high - low) * (first - last)

    ticks = [Tick(round(down(at), 1), f"{at:g} dB") for at in _rounds(low, high, 7)] if finite else []
    ticks += [Tick(top, "exact")] * exact + [Tick(floor, "NaN, ∞")] * broken
    return down, ticks


def _widened(low: float, high: float, least: float) -> tuple[float, float]:
    """A range with room at its ends, and with some extent where all is one value."""
    room = max((high - low) * 0.08, 0.0) or least
    return low - room, high + room


def _rounds(low: float, high: float, most: int) -> Iterator[float]:
    """Round numbers from `low` to `high`, 1, 2 or 5 times a power of ten apart, about `most` of them."""
    raw = (high - low) / max(most, 1)
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * each for each in (1, 2, 5, 10) if unit * each >= raw * 0.999)
    for count in range(math.ceil(low / step), math.floor(high / step) + 1):
        yield count * step


def _decades(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [each * 10.0**power for power in range(first, last + 1) for each in (1, 2, 5)]


def _apart(ticks: Sequence[Tick], left: float, right: float) -> list[Tick]:
    """Those between the ends whose labels do not touch."""
    shown: list[Tick] = []
    for tick in ticks:
        inside = left - 10 <= tick.at <= right + 4
        if inside and (not shown or tick.at - shown[-1].at > 52):
            shown.append(tick)
    return shown


@dataclass(frozen=True)
class _Box:
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: _Box) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def crossed(self, line: tuple[Point, Point]) -> bool:
        """Whether a line passes through (Liang and Barsky's clipping)."""
        (x, y), (x_end, y_end) = line
        enter, leave = 0.0, 1.0
        for way, room in (
            (x - x_end, x - self.left),
            (x_end - x, self.right - x),
            (y - y_end, y - self.top),
            (y_end - y, self.bottom - y),
        ):
            if way == 0:
                if room < 0:
                    return False
            elif way < 0:
                enter = max(enter, room / way)
            else:
                leave = min(leave, room / way)
        return enter < leave


@dataclass
class _Sheet:
    """What is taken already."""

    width: float
    height: float
    boxes: list[_Box]
    labels: list[_Box] = field(default_factory=list)
    lines: list[tuple[Point, Point]] = field(default_factory=list)

    def holds(self, box: _Box, line: tuple[Point, Point] | None) -> bool:
        inside = box.left >= _LEFT and box.right <= self.width - 2 and box.top >= 0
        if not inside or box.bottom > self.height - _BOTTOM:
            return False
        if any(box.meets(other) for other in (*self.boxes, *self.labels)) or any(
            map(box.crossed, self.lines)
        ):
            return False
        return line is None or not any(other.crossed(line) for other in self.labels)


def _placed(
    spots: Sequence[Spot], names: dict[int, str] | None, width: int, height: int
) -> tuple[Label, ...]:
    """A label for each mark or group of marks, all by name or all by number; with names, none if one has no place."""
    sheet = _Sheet(width, height, [_around(spot) for spot in spots])
    made = []
    for group in _groups(spots):
        text = _numbers(group) if names is None else _names(group, names)
        label = next(_tries(sheet, group[0], text), None)
        if label is not None:
            made.append(label)
        elif names is not None:
            return ()
    return tuple(made)


def _tries(sheet: _Sheet, spot: Spot, text: str) -> Iterator[Label]:
    """The places for a label that are free, the nearest first; what is taken is taken down."""
    wide = _width(text)
    for distance in (8.0, 16.0, 26.0, 38.0, 52.0, 68.0, 86.0, 106.0):
        for turn in (0, 8, 4, 12, 2, 14, 6, 10, 1, 15, 7, 9, 3, 13, 5, 11):
            angle = turn * math.pi / 8
            x, y = spot.x + distance * math.cos(angle), spot.y - distance * math.sin(angle)
            anchor = "start" if turn in _RIGHT_OF else "end" if turn in _LEFT_OF else "middle"
            left = x - wide * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
            middle = y - math.sin(angle) * _LINE / 2
            box = _Box(left - 1, middle - _LINE / 2, left + wide + 1, middle + _LINE / 2)
            line = ((spot.x, spot.y), (round(x, 1), round(y, 1))) if distance > 16 else None
            if sheet.holds(box, line):
                sheet.labels.append(box)
                sheet.lines += [line] if line is not None else []
                yield Label(round(x, 1), round(middle + 3.5, 1), text, anchor, line)
                return


def _groups(spots: Sequence[Spot]) -> list[list[Spot]]:
    """Marks that cover each other are labelled together."""
    groups: list[list[Spot]] = []
    for spot in spots:
        near = next((g for g in groups if math.dist((spot.x, spot.y), (g[0].x, g[0].y)) < _TOGETHER), None)
        if near is None:
            groups.append([spot])
        else:
            near.append(spot)
    return groups


def _around(spot: Spot) -> _Box:
    return _Box(spot.x - _MARK, spot.y - _MARK, spot.x + _MARK, spot.y + _MARK)


def _names(group: Sequence[Spot], names: dict[int, str]) -> str:
    shown = [_short(wording.text(names[spot.number])) for spot in group]
    return ", ".join(shown)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST // 2]}…{name[-_LONGEST // 2 + 1 :]}"


def _numbers(group: Sequence[Spot]) -> str:
    """ "1, 4-6, 9"."""
    runs: list[list[int]] = []
    for number in sorted(spot.number for spot in group):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _width(text: str) -> float:
    """At most what a line takes in a sans-serif of 10 units; ideographs are as wide as high."""
    return sum(11.0 if unicodedata.east_asian_width(each) in "WF" else 6.6 for each in text)
