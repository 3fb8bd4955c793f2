"""The charts of a run's page: histograms of differences, and SQNR along the graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from onnxport.reports import phrases
from onnxport.reports.charts import WIDTH, Bar, Tick
from onnxport.reports.run_report import Timing
from onnxport.validate.report import Histogram, LayerFigure

T = TypeVar("T")

HEIGHT = 150
_LEFT, _RIGHT, _TOP, _FLOOR = 46, WIDTH - 16, 12, HEIGHT - 24
_MOST_POINTS = 900


@dataclass(frozen=True)
class Mark:
    """A bar (x, y, width, height) or a point (x, y); `title` is shown when the reader points at it."""

    x: float
    y: float
    title: str
    width: float = 0.0
    height: float = 0.0
    alarm: bool = False


@dataclass(frozen=True)
class Chart:
    """A chart's marks and ticks; `line` joins the points, `limit` is the x of the tolerance."""

    marks: tuple[Mark, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    title: str
    line: str = ""
    limit: float | None = None


def step_bars(timings: Sequence[Timing]) -> list[Bar]:
    """Return the time of each step of a run."""
    return [Bar(each.step, each.seconds, "in parallel" if each.parallel else "") for each in timings]


def histogram(found: Histogram) -> Chart | None:
    """Draw bars over decades of |difference| / scale; the height is logarithmic, or one element would vanish."""
    edges, counts = found.edges, found.counts
    if len(edges) < 2 or not any(counts):
        return None
    low, span = edges[0], (edges[-1] - edges[0]) or 1.0
    top = math.log10(1 + max(counts))

    def place(edge: float) -> float:
        return round(min(max(_LEFT + (edge - low) / span * (_RIGHT - _LEFT), _LEFT), _RIGHT), 2)

    marks = []
    for left, right, amount in zip(edges, edges[1:], counts, strict=False):
        if amount:
            height = round(math.log10(1 + amount) / top * (_FLOOR - _TOP), 2)
            title = f"{phrases.count(amount, 'element')} between 1e{left:g} and 1e{right:g} of scale"
            limit = right if found.allowed is None else min(max(found.allowed, left), right)
            # A bar on both sides of the tolerance is drawn in two parts.
            for start, end, alarm in ((left, limit, False), (limit, right, True)):
                if end > start:
                    width = round(max(place(end) - place(start) - (end == right), 0.5), 2)
                    marks.append(Mark(place(start), _FLOOR - height, title, width, height, alarm))
    return Chart(
        marks=tuple(marks),
        x_ticks=tuple(Tick(place(edge), f"1e{edge:g}") for edge in _evenly(edges, WIDTH // 55)),
        y_ticks=(Tick(_TOP, f"{max(counts):,}"), Tick(_FLOOR, "0")),
        title=f"Differences of {sum(counts):,} elements",
        limit=None if found.allowed is None else place(found.allowed),
    )


def layers(found: Sequence[LayerFigure]) -> Chart | None:
    """Draw SQNR in dB over the nodes in the graph's order; exact values lie on the upper edge."""
    regular = set(_evenly(range(len(found)), _MOST_POINTS))
    shown = [layer for number, layer in enumerate(found) if number in regular or is_at_fault(layer)]
    finite = [layer.sqnr_db for layer in shown if layer.sqnr_db is not None and math.isfinite(layer.sqnr_db)]
    if not finite:
        return None
    low, high = min(0.0, *finite), max(20.0, *finite)

    def point(number: int, layer: LayerFigure) -> Mark:
        sqnr = layer.sqnr_db if layer.sqnr_db is not None and not math.isnan(layer.sqnr_db) else low
        x = _LEFT + 4 + number / max(len(shown) - 1, 1) * (_RIGHT - _LEFT - 8)
        y = _FLOOR - (min(max(sqnr, low), high) - low) / (high - low) * (_FLOOR - _TOP)
        title = f"{phrases.node(layer.node)}: {phrases.number(layer.sqnr_db)} dB"
        return Mark(round(x, 2), round(y, 2), title, alarm=is_at_fault(layer))

    marks = tuple(point(number, layer) for number, layer in enumerate(shown))
    return Chart(
        marks=marks,
        x_ticks=(Tick(marks[0].x, "first node", "start"), Tick(marks[-1].x, "last node", "end")),
        y_ticks=(Tick(_TOP, f"{high:.0f} dB"), Tick(_FLOOR, f"{low:.0f} dB")),
        title=f"SQNR of {phrases.count(len(found), 'value')} in the graph's order; exact values lie at the top",
        line=" ".join(f"{mark.x},{mark.y}" for mark in marks),
    )


def is_at_fault(layer: LayerFigure) -> bool:
    """Return whether the node differs from the reference's on its own inputs."""
    return (layer.local_share or 0.0) > 1


def _evenly(things: Sequence[T], most: int) -> Sequence[T]:
    """Return at most `most` of them at even distances, the first among them."""
    return things[:: max(1, math.ceil(len(things) / most))]
