"""Size against accuracy, as the HTML report draws it: where marks and labels lie, in the units of the SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from onnxport.reports import wording
from onnxport.reports.axes import Axis, amounts, rounds, widened
from onnxport.reports.charts import WIDTHS, Tick
from onnxport.reports.labels import Label, Room, placed
from onnxport.reports.pipeline.matrix import Row, sqnr_of

HEIGHTS = {"phone": 280, "desktop": 360}
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 16, 16, 34


@dataclass(frozen=True)
class Spot:
    """A mark; one of a cell that was not delivered looks otherwise, not only in its colour."""

    x: float
    y: float
    says: str
    number: int
    alarm: bool
    reach: float = 5.0


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
    across, x_ticks = amounts(
        [size for _, size, _ in found], _LEFT + 12, width - _RIGHT - 12, wording.about_size, gap=52
    )
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
    room = Room(_LEFT, width - 2, height - _BOTTOM)
    labels = placed(spots, names, room)
    return Plot(
        width=width,
        height=height,
        spots=spots,
        labels=labels or placed(spots, None, room),
        x_ticks=tuple(x_ticks),
        y_ticks=tuple(y_ticks),
        says=f"Size against accuracy of {wording.count(len(spots), 'artefact')}; the table above has the figures",
        numbered=not labels,
        left_out=len(rows) - len(spots),
    )


def _accuracies(found: Sequence[float], floor: float, top: float) -> Axis:
    """From SQNR in dB to y: what has no error lies on a line above all others, what is not finite on one below."""
    finite = [each for each in found if math.isfinite(each)]
    exact, broken = math.inf in found, -math.inf in found
    first, last = floor - 26 * broken, top + 26 * exact
    low, high = widened(min(finite), max(finite), 5.0) if finite else (0.0, 1.0)

    def down(sqnr: float) -> float:
        if not math.isfinite(sqnr):
            return top if sqnr > 0 else floor
        return first - (sqnr - low) / (high - low) * (first - last)

    ticks = [Tick(round(down(at), 1), f"{at:g} dB") for at in rounds(low, high, 7)] if finite else []
    ticks += [Tick(top, "exact")] * exact + [Tick(floor, "NaN, ∞")] * broken
    return down, ticks
