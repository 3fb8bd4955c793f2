"""Where the marks of the HTML report's charts lie, in the units of their SVG; the template draws them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from onnxport.reports import wording
from onnxport.reports.run_report import Timing
from onnxport.validate.report import Histogram, LayerFigure

T = TypeVar("T")

# A phone's and a desktop's page: each is drawn for its own, so that the text keeps its size.
WIDTHS = {"phone": 340, "desktop": 860}
HEIGHT = 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 16, 12, 24
_FLOOR = HEIGHT - _BOTTOM
_POINTS = 900


@dataclass(frozen=True)
class Mark:
    """A bar (x, y, width, height) or a point (x, y), and what it says when it is pointed at."""

    x: float
    y: float
    says: str
    width: float = 0.0
    height: float = 0.0
    alarm: bool = False


@dataclass(frozen=True)
class Tick:
    """A label on an axis: where, and what."""

    at: float
    label: str
    anchor: str = "middle"


@dataclass(frozen=True)
class Chart:
    """A chart's marks and ticks; `line` joins the points, `limit` is the x of what is allowed."""

    width: int
    marks: tuple[Mark, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    says: str
    line: str = ""
    limit: float | None = None


@dataclass(frozen=True)
class Bar:
    """A time beside its name; `idle` where nothing was spent on it in this run."""

    label: str
    seconds: float
    remark: str = ""
    idle: bool = False


def bars(timings: Sequence[Timing]) -> list[Bar]:
    """How long each step of a run took."""
    return [Bar(each.step, each.seconds, "beside the others" if each.parallel else "") for each in timings]


def histogram(found: Histogram, width: int = WIDTHS["phone"]) -> Chart | None:
    """Bars over decades of |difference| / scale; the height is logarithmic, or one element would vanish."""
    edges, counts = found.edges, found.counts
    if len(edges) < 2 or not any(counts):
        return None
    low, span = edges[0], (edges[-1] - edges[0]) or 1.0
    top = math.log10(1 + max(counts))
    base = width - _RIGHT

    def across(edge: float) -> float:
        place = _LEFT + (edge - low) / span * (base - _LEFT)
        return round(min(max(place, _LEFT), base), 2)

    marks = []
    for left, right, amount in zip(edges, edges[1:], counts, strict=False):
        if amount:
            height = round(math.log10(1 + amount) / top * (_FLOOR - _TOP), 2)
            breadth = round(max(across(right) - across(left) - 1, 1), 2)
            says = f"{wording.count(amount, 'element')} between 1e{left:g} and 1e{right:g} of scale"
            alarm = found.allowed is not None and left >= found.allowed
            marks.append(Mark(across(left), _FLOOR - height, says, breadth, height, alarm))
    return Chart(
        width=width,
        marks=tuple(marks),
        x_ticks=tuple(Tick(across(edge), f"1e{edge:g}") for edge in _some(edges, width // 55)),
        y_ticks=(Tick(_TOP, f"{max(counts):,}"), Tick(_FLOOR, "0")),
        says=f"How far {sum(counts):,} elements are off",
        limit=None if found.allowed is None else across(found.allowed),
    )


def layers(found: Sequence[LayerFigure], width: int = WIDTHS["phone"]) -> Chart | None:
    """SQNR in dB over the nodes in the graph's order; what has no error lies on the upper edge."""
    regular = set(_some(range(len(found)), _POINTS))
    shown = [layer for number, layer in enumerate(found) if number in regular or at_fault(layer)]
    finite = [layer.sqnr_db for layer in shown if layer.sqnr_db is not None and math.isfinite(layer.sqnr_db)]
    if not finite:
        return None
    low, high = min(0.0, *finite), max(20.0, *finite)

    def point(number: int, layer: LayerFigure) -> Mark:
        sqnr = layer.sqnr_db if layer.sqnr_db is not None and not math.isnan(layer.sqnr_db) else low
        x = _LEFT + 4 + number / max(len(shown) - 1, 1) * (width - _RIGHT - _LEFT - 8)
        y = _FLOOR - (min(max(sqnr, low), high) - low) / (high - low) * (_FLOOR - _TOP)
        says = f"{wording.node(layer.node)}: {wording.number(layer.sqnr_db)} dB"
        return Mark(round(x, 2), round(y, 2), says, alarm=at_fault(layer))

    marks = tuple(point(number, layer) for number, layer in enumerate(shown))
    return Chart(
        width=width,
        marks=marks,
        x_ticks=(Tick(marks[0].x, "first node", "start"), Tick(marks[-1].x, "last node", "end")),
        y_ticks=(Tick(_TOP, f"{high:.0f} dB"), Tick(_FLOOR, f"{low:.0f} dB")),
        says=f"SQNR of {wording.count(len(found), 'value')} in the graph's order, on top without error",
        line=" ".join(f"{mark.x},{mark.y}" for mark in marks),
    )


def at_fault(layer: LayerFigure) -> bool:
    """Whether the node differs from the reference's on its own inputs."""
    return (layer.local_share or 0.0) > 1


def _some(things: Sequence[T], most: int) -> Sequence[T]:
    """At most `most` of them, evenly taken, the first among them."""
    return things[:: max(1, math.ceil(len(things) / most))]
