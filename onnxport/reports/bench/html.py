"""The report of a bench as one HTML page: size against latency against accuracy first, then row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onnxport.bench.report import BenchReport, Row
from onnxport.reports import tradeoff, wording
from onnxport.reports.bench import figures
from onnxport.reports.bench.figures import Bench
from onnxport.reports.html import page
from onnxport.reports.tradeoff import Choice

LENGTH = 1000  # of a strip, in units of its drawing


@dataclass(frozen=True)
class Strip:
    """A row's times: where the bar ends, its interval, and its quantiles; one beyond the edge is at it."""

    label: str
    median: float
    low: float
    high: float
    p90: float
    p99: float
    beyond: bool
    says: str
    figure: str


@dataclass(frozen=True)
class Layer:
    """A part of a row's memory."""

    kind: str
    at: float
    length: float
    says: str


@dataclass(frozen=True)
class Held:
    """A row's memory, layer upon layer."""

    label: str
    layers: tuple[Layer, ...]
    figure: str


@dataclass(frozen=True)
class Range:
    """A row beside its baseline: the ratio and its interval, on a scale with 1 and the limit."""

    label: str
    standing: str
    ratio: float | None
    low: float
    high: float
    one: float
    limit: float
    figure: str
    says: str
    remark: str


def view(report: BenchReport) -> str:
    bench = Bench(report)
    return page(
        "bench/report.html.j2",
        ("report.css", "drawing.css", "bench/report.css"),
        run=report,
        bench=bench,
        f=figures,
        columns=figures.columns(bench.measured),
        differing=any(map(bench.settings, bench.measured)),
        plots=tradeoff.plots(choices(bench)),
        strips=strips(bench),
        held=held(bench),
        ranges=ranges(bench),
        length=LENGTH,
        enough=tradeoff.ENOUGH,
    )


def choices(bench: Bench) -> list[Choice]:
    """What the drawing shows: each row that was timed."""
    alone = len({row.artifact for row in bench.measured}) == 1
    return [
        Choice(
            number=number,
            artifact=row.artifact,
            name=bench.label(row) if alone else bench.name(row),
            size=row.size,
            ms=bench.time(row),
            low=row.latency.low / bench.samples(row),
            high=row.latency.high / bench.samples(row),
            sqnr=row.accuracy.sqnr if row.accuracy is not None else None,
            says=", ".join(_said(bench, row)),
            alarm=row.against is not None and row.against.standing == "slower",
            origin=row.accuracy is not None and row.accuracy.reference == row.artifact,
        )
        for number, row in enumerate(bench.rows, 1)
        if row.latency is not None
    ]


def _said(bench: Bench, row: Row) -> Iterator[str]:
    yield bench.label(row)
    yield figures.size(row)
    yield f"{wording.duration(bench.time(row))}{' a sample' if bench.by_sample else ''}"
    if said := figures.accuracy(row):
        yield said


def strips(bench: Bench) -> list[Strip]:
    """Bars of times on one scale, which the slowest tenth of the slowest row's runs ends; what is beyond is said."""
    timed = [(row, row.latency, bench.samples(row)) for row in bench.measured if row.latency is not None]
    end = max((max(found.p90, found.high) / by for _, found, by in timed), default=0.0) * 1.12 or 1.0

    def place(ms: float, by: int) -> float:
        return round(min(ms / by / end, 1.0) * LENGTH, 1)

    return [
        Strip(
            label=bench.label(row),
            median=place(found.median, by),
            low=place(found.low, by),
            high=place(found.high, by),
            p90=place(found.p90, by),
            p99=place(found.p99, by),
            beyond=found.p99 / by > end,
            says=(
                f"half of the runs within {wording.duration(found.median)} ({100 * found.confidence:.0f} % sure: "
                f"{figures.interval(row)}), nine in ten within {wording.duration(found.p90)}, "
                f"99 in 100 within {wording.duration(found.p99)}; {wording.count(found.runs, 'run')}"
            ),
            figure=wording.duration(found.median / by),
        )
        for row, found, by in timed
    ]


def held(bench: Bench) -> list[Held]:
    """Bars of memory on one scale."""
    found = [(row, row.memory) for row in bench.measured if row.memory is not None]
    end = max((memory.peak for _, memory in found), default=0) or 1
    made = []
    for row, memory in found:
        marks = (0, memory.bare, memory.imported, memory.loaded, memory.peak)
        layers, at = [], 0
        for kind, mark in zip(("bare", "runtime", "model", "runs"), marks[1:], strict=True):
            if mark > at:
                said = f"{_LAYERS[kind]}: {wording.human_size(mark - at)}"
                length = (mark - at) / end * LENGTH
                layers.append(Layer(kind, round(at / end * LENGTH, 1), round(length, 1), said))
                at = mark
        made.append(Held(bench.label(row), tuple(layers), wording.human_size(memory.peak)))
    return made


_LAYERS = {
    "bare": "the process alone",
    "runtime": "the runtime's libraries",
    "model": "the model, ready to run",
    "runs": "what runs take besides",
}


def ranges(bench: Bench) -> list[Range]:
    """Ratios to the baseline on one scale."""
    found = [(row, row.against) for row in bench.rows if row.against is not None]
    known: Sequence[float] = [
        each
        for _, against in found
        for each in (1.0, against.limit, against.ratio, against.low, against.high)
        if each is not None
    ]
    if not known:
        return []
    room = max(max(known) - min(known), 0.05) * 0.08
    start, end = max(min(known) - room, 0.0), max(known) + room

    def place(ratio: float) -> float:
        return round((ratio - start) / (end - start) * LENGTH, 1)

    return [
        Range(
            label=bench.label(row),
            standing=against.standing,
            ratio=None if against.ratio is None else place(against.ratio),
            low=place(against.low if against.low is not None else against.ratio or 1.0),
            high=place(against.high if against.high is not None else against.ratio or 1.0),
            one=place(1.0),
            limit=place(against.limit),
            figure=figures.ratio(row),
            says=figures.standing(row),
            # Of the others the figure and the drawing say it all.
            remark=wording.text(against.said) if against.standing in ("unclear", "new") else "",
        )
        for row, against in found
    ]
