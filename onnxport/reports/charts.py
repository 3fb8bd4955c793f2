"""Chart parts that several pages share, in the units of their SVG: axes, scatter charts of numbered marks, bars.

One drawing serves phones and desktops: page.css limits its width, so that its text stays legible on both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onnxport.reports.phrases import human_size

WIDTH, HEIGHT = 400, 280  # of a scatter chart
LEFT, RIGHT, TOP, FLOOR = 54, 386, 26, 246  # its axes


@dataclass(frozen=True)
class Tick:
    """A label on an axis."""

    at: float
    label: str
    anchor: str = "middle"


@dataclass(frozen=True)
class Axis:
    """Maps a value to a coordinate."""

    place: Callable[[float], float]
    ticks: tuple[Tick, ...]


@dataclass(frozen=True)
class Bar:
    """A time beside its name; `idle` where this run spent none."""

    label: str
    seconds: float
    remark: str = ""
    idle: bool = False


@dataclass(frozen=True)
class Spot:
    """A mark of a scatter chart; its number stands inside, its name in the key, a mark without a name is a small dot.

    Attributes:
        title: shown when the reader points at the mark.
        ring: percentage of the ring that is closed; None draws a dotted ring.
        whisker: x of both ends of an interval.
    """

    x: float
    y: float
    number: int
    name: str
    title: str
    ring: float | None = 100.0
    whisker: tuple[float, float] | None = None
    faint: bool = False
    alarm: bool = False


@dataclass(frozen=True)
class Scatter:
    """A scatter chart; `line` joins some of its marks."""

    spots: tuple[Spot, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    x_title: str
    y_title: str
    title: str
    line: str = ""

    @property
    def key(self) -> list[tuple[int, str]]:
        return [(spot.number, spot.name) for spot in self.spots if spot.name]


def logarithmic_axis(
    amounts: Sequence[float], start: float, end: float, text: Callable[[float], str]
) -> Axis:
    """Return an axis from the least positive amount at `start` to the largest at `end`, ticks there and halfway."""
    positive = [amount for amount in amounts if amount > 0] or [1.0]
    low, high = min(positive), max(positive)
    scale = linear_axis([math.log(low), math.log(high)], start, end, lambda value: text(math.exp(value)))
    return Axis(lambda amount: scale.place(math.log(max(amount, low))), scale.ticks)


def size_axis(sizes: Sequence[float], start: float, end: float) -> Axis:
    """Return a logarithmic axis of bytes."""
    return logarithmic_axis(sizes, start, end, lambda size: human_size(round(size)))


def linear_axis(values: Sequence[float], start: float, end: float, text: Callable[[float], str]) -> Axis:
    """Return an axis from the least value at `start` to the largest at `end`, ticks there and halfway."""
    low, high = min(values), max(values)

    def place(value: float) -> float:
        share = (value - low) / (high - low) if high > low else 0.5
        return round(start + share * (end - start), 1)

    # Values that read the same share a tick.
    ticks = {text(value): Tick(place(value), text(value)) for value in (low, (low + high) / 2, high)}
    return Axis(place, tuple(ticks.values()))
