"""The HTML page of a bench: size against latency against accuracy first, then row by row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from onnxport.bench.report import BenchReport, Memory
from onnxport.reports import phrases, tradeoff
from onnxport.reports.bench import figures
from onnxport.reports.bench.figures import Bench
from onnxport.reports.charts import linear_axis
from onnxport.reports.page import render
from onnxport.reports.tradeoff import Choice

LENGTH = 1000.0  # of a strip, in units of its drawing
# Parts of a process' memory: CSS class and what it is.
LAYERS = {
    "bare": "the process alone",
    "runtime": "the runtime's libraries",
    "model": "the model, ready to run",
    "runs": "added by runs",
}


@dataclass(frozen=True)
class Layer:
    """A part of a row's memory, as a place on its strip; `kind` is a key of LAYERS."""

    kind: str
    at: float
    length: float
    title: str


def view(report: BenchReport) -> str:
    bench = Bench(report)
    return render(
        "bench/report.html.j2",
        ("charts.css", "bench/report.css"),
        run=report,
        bench=bench,
        f=figures,
        columns=figures.columns(bench.measured),
        differing=any(map(bench.settings, bench.measured)),
        plot=tradeoff.draw(choices(bench), "time of a sample" if bench.by_sample else "time of a run"),
        place_time=time_scale(bench),
        place_ratio=ratio_scale(bench),
        memory_layers=memory_layers,
        most_memory=max((row.memory.peak for row in bench.measured if row.memory), default=0) or 1,
        length=LENGTH,
        layers=LAYERS,
        full_ring=tradeoff.FULL_RING_DB,
    )


def choices(bench: Bench) -> list[Choice]:
    """Return the rows of the first chart: those that were timed."""
    is_single = len({row.artifact for row in bench.measured}) == 1
    return [
        Choice(
            number=number,
            artifact=row.artifact,
            name=bench.label(row) if is_single else bench.name(row),
            size=row.size,
            ms=bench.time(row),
            low=row.latency.low / bench.samples(row),
            high=row.latency.high / bench.samples(row),
            sqnr=row.accuracy.sqnr if row.accuracy is not None else None,
            title=", ".join(
                filter(
                    None, (bench.label(row), figures.size(row), bench.time_text(row), figures.accuracy(row))
                )
            ),
            alarm=row.against is not None and row.against.standing == "slower",
        )
        for number, row in enumerate(bench.rows, 1)
        if row.latency is not None
    ]


def time_scale(bench: Bench) -> Callable[[float], float]:
    """Return the scale of the strips of times, from 0 to a little more than the largest p90."""
    times = [(row.latency, bench.samples(row)) for row in bench.measured if row.latency is not None]
    end = max((max(found.p90 or 0.0, found.high) / by for found, by in times), default=0.0) * 1.12 or 1.0
    place = linear_axis((0.0, end), 0.0, LENGTH, str).place
    return lambda ms: min(place(ms), LENGTH)


def ratio_scale(bench: Bench) -> Callable[[float], float]:
    """Return the scale of the strips of ratios to the baseline, which shows all intervals, 1 and the limit."""
    found = [row.against for row in bench.rows if row.against is not None]
    values = [1.0, *(each for one in found for each in (one.limit, one.ratio, one.low, one.high) if each)]
    margin = max(max(values) - min(values), 0.05) * 0.08
    return linear_axis((max(min(values) - margin, 0.0), max(values) + margin), 0.0, LENGTH, str).place


def memory_layers(memory: Memory, most: int) -> list[Layer]:
    """Return the layers of a strip that has room for `most` bytes."""
    layers, at = [], 0
    marks = (memory.bare, memory.imported, memory.loaded, memory.peak)
    for (kind, name), mark in zip(LAYERS.items(), marks, strict=True):
        if mark is not None and mark > at:
            start, length = (round(each / most * LENGTH, 1) for each in (at, mark - at))
            layers.append(Layer(kind, start, length, f"{name}: {phrases.human_size(mark - at)}"))
            at = mark
    return layers
