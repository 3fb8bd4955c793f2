"""What a pipeline's page draws as size against latency against accuracy: timed cells, and what they were made of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

from onnxport.reports import wording
from onnxport.reports.pipeline import matrix
from onnxport.reports.pipeline.matrix import Row, sqnr_of
from onnxport.reports.run_report import ArtifactRecord, Latency
from onnxport.reports.tradeoff import Choice

Timed = tuple[Row, ArtifactRecord, Latency]


def choices(rows: Sequence[Row]) -> list[Choice]:
    """Those that have both figures; none where nothing was timed.

    Cells are timed one after the other, each in turns with the model. Times of the model differ with what else the
    machine did; their median is taken for all of its cells, and a cell's share of it is what its own turns said.
    """
    made: list[Choice] = []
    for model, cells in matrix.by_model(rows).items():
        timed = [(row, row.made, row.latency) for row in cells if row.made and row.latency]
        if timed:
            made += _of_model(model, timed, len(rows) + len(made) + 1)
    return made


def _of_model(model: str, timed: Sequence[Timed], number: int) -> Iterator[Choice]:
    whole = median(latency.before_ms for _, _, latency in timed)
    _, first, _ = timed[0]
    size = first.report.reference.size
    yield Choice(
        number=number,
        artifact=model,
        name=wording.text(model),
        size=size,
        ms=whole,
        sqnr=math.inf,
        says=f"{model}, the model itself: {wording.human_size(size)}, {wording.duration(whole)}",
        origin=True,
    )
    for row, made, latency in timed:
        yield Choice(
            number=row.number,
            artifact=row.cell.name,
            name=wording.text(row.cell.name),
            size=made.size,
            ms=whole / latency.speedup,
            low=whole / latency.high if latency.confidence else None,
            high=whole / latency.low if latency.confidence else None,
            sqnr=None if row.telling is None else sqnr_of(row.telling),
            says=f"{row.cell.name}: {row.size}, {wording.speed(latency)}, {row.accuracy}",
            alarm=row.cell.path is None,
        )
