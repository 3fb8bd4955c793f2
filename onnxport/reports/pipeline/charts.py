"""The charts of a pipeline's page: time of each stage, size against accuracy, size against latency."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

from onnxport.reports import phrases
from onnxport.reports.charts import (
    FLOOR,
    LEFT,
    RIGHT,
    TOP,
    Axis,
    Bar,
    Scatter,
    Spot,
    Tick,
    linear_axis,
    size_axis,
)
from onnxport.reports.pipeline import matrix
from onnxport.reports.pipeline.matrix import Row, comparable_sqnr
from onnxport.reports.pipeline_report import NodeRecord
from onnxport.reports.run_report import ArtifactRecord, Latency
from onnxport.reports.tradeoff import Choice

Timed = tuple[Row, ArtifactRecord, Latency]


def stage_bar(node: NodeRecord) -> Bar:
    """Return a node's time in this run; for one from the cache, the time of the run that made it."""
    if node.status == "cached" and node.run is not None:
        return Bar(node.name, node.run.seconds, "from the cache; when it was made", idle=True)
    remark = "" if node.status == "made" else node.status
    return Bar(node.name, node.seconds, remark, idle=node.status == "not run")


def size_against_accuracy(rows: Sequence[Row]) -> Scatter | None:
    """Return the chart of the cells that have both figures; None where none has."""
    found = [
        (row, row.artifact.size, comparable_sqnr(row.worst_output))
        for row in rows
        if row.artifact and row.worst_output
    ]
    if not found:
        return None
    x_axis = size_axis([size for _, size, _ in found], LEFT + 16, RIGHT - 16)
    y_axis = _sqnr_axis([sqnr for *_, sqnr in found], FLOOR - 14, TOP + 6)
    spots = tuple(
        Spot(
            x=x_axis.place(size),
            y=y_axis.place(sqnr),
            number=row.number,
            name=row.cell.name,
            title=phrases.text(f"{row.cell.name}: {row.size}, {row.accuracy}, {row.cell.verdict}"),
            alarm=row.cell.path is None,
        )
        for row, size, sqnr in found
    )
    return Scatter(
        spots=spots,
        x_ticks=x_axis.ticks,
        y_ticks=y_axis.ticks,
        x_title="size on disk",
        y_title="SQNR",
        title=f"Size against accuracy of {phrases.count(len(spots), 'artefact')}; the table above has the figures",
    )


def _sqnr_axis(values: Sequence[float], floor: float, top: float) -> Axis:
    """Return an axis of SQNR in dB; exact outputs lie on a line above all others, non-finite ones on one below."""
    finite = [value for value in values if math.isfinite(value)]
    exact, broken = math.inf in values, -math.inf in values
    scale = linear_axis(
        finite or [0.0], floor - 24 * broken, top + 24 * exact, lambda value: f"{value:.3g} dB"
    )

    def place(sqnr: float) -> float:
        if math.isfinite(sqnr):
            return scale.place(sqnr)
        return top if sqnr > 0 else floor

    ends = [Tick(top, "exact")] * exact + [Tick(floor, "NaN, ∞")] * broken
    return Axis(place, (*(scale.ticks if finite else ()), *ends))


def choices(rows: Sequence[Row]) -> list[Choice]:
    """Return the cells that have a size and a latency, and their models; empty where no cell was timed.

    Each cell is timed in turns with its model. The median of the model's times stands for all of them; a cell's time
    is that median divided by the cell's own speedup.
    """
    found: list[Choice] = []
    for model, cells in matrix.by_model(rows).items():
        timed = [(row, row.artifact, row.latency) for row in cells if row.artifact and row.latency]
        if timed:
            found += _choices_of_model(model, timed, len(rows) + len(found) + 1)
    return found


def _choices_of_model(model: str, timed: Sequence[Timed], number: int) -> Iterator[Choice]:
    model_ms = median(latency.before_ms for _, _, latency in timed)
    size = timed[0][1].report.reference.size
    yield Choice(
        number=number,
        artifact=model,
        name=phrases.text(model),
        size=size,
        ms=model_ms,
        sqnr=math.inf,
        title=f"{model}, the model itself: {phrases.human_size(size)}, {phrases.duration(model_ms)}",
    )
    for row, artifact, latency in timed:
        yield Choice(
            number=row.number,
            artifact=row.cell.name,
            name=phrases.text(row.cell.name),
            size=artifact.size,
            ms=model_ms / latency.speedup,
            low=model_ms / latency.high if latency.confidence else None,
            high=model_ms / latency.low if latency.confidence else None,
            sqnr=None if row.worst_output is None else comparable_sqnr(row.worst_output),
            title=f"{row.cell.name}: {row.size}, {phrases.speed(latency)}, {row.accuracy}",
            alarm=row.cell.path is None,
        )
