"""Labels of the marks in a drawing, in the units of its SVG.

A label is placed where it touches no mark, no other label and no line that joins a label to its mark. Where the names
of all do not fit, numbers stand in their place, which the page explains.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from onnxport.reports import wording

_LINE = 12.0  # a line of text
_LONGEST = 30  # characters of a name
_TOGETHER = 7.0  # marks this near share a label
# Sixteenths of a turn, from the right counter-clockwise, at which text grows away from its mark to either side.
_RIGHT_OF, _LEFT_OF = (14, 15, 0, 1, 2), (6, 7, 8, 9, 10)

Point = tuple[float, float]
Line = tuple[Point, Point]


class Marked(Protocol):
    """A mark that is to have a label: its place, half its width, and the number of its name."""

    @property
    def x(self) -> float: ...
    @property
    def y(self) -> float: ...
    @property
    def reach(self) -> float: ...
    @property
    def number(self) -> int: ...


@dataclass(frozen=True)
class Label:
    """Text anchored at x with its base line at y, and the line to its mark where it is apart from it."""

    x: float
    y: float
    text: str
    anchor: str
    line: Line | None = None


@dataclass(frozen=True)
class Room:
    """Where labels may be."""

    left: float
    right: float
    floor: float


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

    def crossed(self, line: Line) -> bool:
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

    room: Room
    boxes: list[_Box]
    labels: list[_Box] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)

    def holds(self, box: _Box, line: Line | None) -> bool:
        if box.left < self.room.left or box.right > self.room.right:
            return False
        if box.top < 0 or box.bottom > self.room.floor:
            return False
        if any(box.meets(other) for other in (*self.boxes, *self.labels)) or any(
            map(box.crossed, self.lines)
        ):
            return False
        return line is None or not any(other.crossed(line) for other in self.labels)


def placed(
    spots: Sequence[Marked],
    names: Mapping[int, str] | None,
    room: Room,
    beside: Sequence[Marked] = (),
    lines: Sequence[Line] = (),
) -> tuple[Label, ...]:
    """A label for each mark or group of marks, all by name or all by number; with names, none if one has no place.

    Args:
        names: of the marks' numbers; None for numbers.
        beside: marks without a label, which are not to be covered.
        lines: what is drawn besides.
    """
    sheet = _Sheet(room, [_around(spot) for spot in (*spots, *beside)], lines=list(lines))
    made = []
    for group in _groups(spots):
        text = _numbers(group) if names is None else _names(group, names)
        label = next(_tries(sheet, group[0], text), None)
        if label is not None:
            made.append(label)
        elif names is not None:
            return ()
    return tuple(made)


def _tries(sheet: _Sheet, spot: Marked, text: str) -> Iterator[Label]:
    """The places for a label that are free, the nearest first; what is taken is taken down."""
    wide = _width(text)
    for further in (3.0, 11.0, 21.0, 33.0, 47.0, 63.0, 81.0, 101.0):
        distance = further + spot.reach
        for turn in (0, 8, 4, 12, 2, 14, 6, 10, 1, 15, 7, 9, 3, 13, 5, 11):
            angle = turn * math.pi / 8
            x, y = spot.x + distance * math.cos(angle), spot.y - distance * math.sin(angle)
            anchor = "start" if turn in _RIGHT_OF else "end" if turn in _LEFT_OF else "middle"
            left = x - wide * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
            middle = y - math.sin(angle) * _LINE / 2
            box = _Box(left - 1, middle - _LINE / 2, left + wide + 1, middle + _LINE / 2)
            line = ((spot.x, spot.y), (round(x, 1), round(y, 1))) if further > 11 else None
            if sheet.holds(box, line):
                sheet.labels.append(box)
                sheet.lines += [line] if line is not None else []
                yield Label(round(x, 1), round(middle + 3.5, 1), text, anchor, line)
                return


def _groups(spots: Sequence[Marked]) -> list[list[Marked]]:
    """Marks that cover each other are labelled together."""
    groups: list[list[Marked]] = []
    for spot in spots:
        near = next((g for g in groups if math.dist((spot.x, spot.y), (g[0].x, g[0].y)) < _TOGETHER), None)
        if near is None:
            groups.append([spot])
        else:
            near.append(spot)
    return groups


def _around(spot: Marked) -> _Box:
    return _Box(spot.x - spot.reach, spot.y - spot.reach, spot.x + spot.reach, spot.y + spot.reach)


def _names(group: Sequence[Marked], names: Mapping[int, str]) -> str:
    shown = [_short(wording.text(names[spot.number])) for spot in group]
    return ", ".join(shown)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST // 2]}…{name[-_LONGEST // 2 + 1 :]}"


def _numbers(group: Sequence[Marked]) -> str:
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
