"""The HTML page of a bench: size against latency against accuracy first, then row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnxport.bench.report import BenchReport, Row
from onnxport.reports import tradeoff, wording
from onnxport.reports.bench import figures
from onnxport.reports.bench.figures import Bench
from onnxport.reports.page import render
from onnxport.reports.tradeoff import Choice

LENGTH = 1000  # of a strip, in units of its drawing
# Parts of a process' memory: CSS class and what it is.
LAYERS = {
    "bare": "the process alone",
    "runtime": "the runtime's libraries",
    "model": "the model, ready to run",
    "runs": "added by runs",
}


@dataclass(frozen=True)
class TimeStrip:
    """A row's times, as places on a strip; `beyond` where p99 lies outside of it."""

    label: str
    median: float
    low: float
    high: float
    p90: float
    p99: float
    beyond: bool
    title: str
    figure: str


@dataclass(frozen=True)
class Layer:
    """A part of a row's memory; `kind` is a key of LAYERS."""

    kind: str
    at: float
    length: float
    title: str


@dataclass(frozen=True)
class MemoryStrip:
    """A row's memory, one layer after the other."""

    label: str
    layers: tuple[Layer, ...]
    figure: str


@dataclass(frozen=True)
class RatioStrip:
    """A row's ratio to the baseline and its interval, as places on a strip with 1 and the limit."""

    label: str
    standing: str
    ratio: float | None
    low: float
    high: float
    one: float
    limit: float
    figure: str
    title: str
    remark: str


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
        times=time_strips(bench),
        memory=memory_strips(bench),
        ratios=ratio_strips(bench),
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
            title=_title(bench, row),
            alarm=row.against is not None and row.against.standing == "slower",
        )
        for number, row in enumerate(bench.rows, 1)
        if row.latency is not None
    ]


def _title(bench: Bench, row: Row) -> str:
    time = f"{wording.duration(bench.time(row))}{' a sample' if bench.by_sample else ''}"
    return ", ".join(filter(None, (bench.label(row), figures.size(row), time, figures.accuracy(row))))


def time_strips(bench: Bench) -> list[TimeStrip]:
    """Return strips of times on one scale, which ends at the largest p90."""
    timed = [(row, row.latency, bench.samples(row)) for row in bench.measured if row.latency is not None]
    end = max((max(found.p90, found.high) / by for _, found, by in timed), default=0.0) * 1.12 or 1.0

    def place(ms: float, by: int) -> float:
        return round(min(ms / by / end, 1.0) * LENGTH, 1)

    return [
        TimeStrip(
            label=bench.label(row),
            median=place(found.median, by),
            low=place(found.low, by),
            high=place(found.high, by),
            p90=place(found.p90, by),
            p99=place(found.p99, by),
            beyond=found.p99 / by > end,
            title=(
                f"p50 {wording.duration(found.median)} ({100 * found.confidence:.0f} % confidence: "
                f"{figures.interval(row)}), p90 {wording.duration(found.p90)}, p99 {wording.duration(found.p99)}; "
                f"{wording.count(found.runs, 'run')}"
            ),
            figure=wording.duration(found.median / by),
        )
        for row, found, by in timed
    ]


def memory_strips(bench: Bench) -> list[MemoryStrip]:
    """Return strips of memory on one scale."""
    found = [(row, row.memory) for row in bench.measured if row.memory is not None]
    end = max((memory.peak for _, memory in found), default=0) or 1
    strips = []
    for row, memory in found:
        layers, at = [], 0
        marks = (memory.bare, memory.imported, memory.loaded, memory.peak)
        for (kind, name), mark in zip(LAYERS.items(), marks, strict=True):
            if mark > at:
                start, length = (round(each / end * LENGTH, 1) for each in (at, mark - at))
                layers.append(Layer(kind, start, length, f"{name}: {wording.human_size(mark - at)}"))
                at = mark
        strips.append(MemoryStrip(bench.label(row), tuple(layers), wording.human_size(memory.peak)))
    return strips


def ratio_strips(bench: Bench) -> list[RatioStrip]:
    """Return strips of ratios to the baseline on one scale."""
    found = [(row, row.against) for row in bench.rows if row.against is not None]
    known: Sequence[float] = [
        each
        for _, against in found
        for each in (1.0, against.limit, against.ratio, against.low, against.high)
        if each is not None
    ]
    if not known:
        return []
    margin = max(max(known) - min(known), 0.05) * 0.08
    start, end = max(min(known) - margin, 0.0), max(known) + margin

    def place(ratio: float) -> float:
        return round((ratio - start) / (end - start) * LENGTH, 1)

    return [
        RatioStrip(
            label=bench.label(row),
            standing=against.standing,
            ratio=None if against.ratio is None else place(against.ratio),
            low=place(against.low if against.low is not None else against.ratio or 1.0),
            high=place(against.high if against.high is not None else against.ratio or 1.0),
            one=place(1.0),
            limit=place(against.limit),
            figure=figures.ratio(row),
            title=figures.standing(row),
            # For the others, figure and drawing say it all.
            remark=wording.text(against.said) if against.standing in ("unclear", "new") else "",
        )
        for row, against in found
    ]
