"""A bench as lines of text: what all rows share, then a line for each, in at most 100 columns where names allow it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from onnxport.bench.record import BenchReport, Row
from onnxport.errors import PROVEN
from onnxport.pipelines.reports import wording
from onnxport.pipelines.reports.bench import figures
from onnxport.pipelines.reports.bench.figures import Bench

_GAP = "  "


def bench_lines(report: BenchReport) -> str:
    """The table, and why rows have no figures."""
    bench = Bench(report)
    return "\n".join([*_head(bench), *_table(bench), *_missing(bench)])


def notes(report: BenchReport) -> list[str]:
    return [f"note: {note}" for note in report.notes]


def failures(report: BenchReport) -> Iterator[str]:
    """Why the command does not end with 0, row by row."""
    bench = Bench(report)
    for row in report.rows:
        if row.exit_code != PROVEN:
            yield f"{bench.label(row)}: {row.why}"
        elif figures.fails(row):
            yield f"{bench.label(row)}: {figures.standing(row)}"


def _head(bench: Bench) -> Iterator[str]:
    shared = f"{bench.shared}; " if bench.shared else ""
    yield f"{shared}{figures.measuring(bench.report)}"


def _table(bench: Bench) -> Iterator[str]:
    if not bench.measured:
        return
    columns = {name: told for name, told in _COLUMNS.items() if any(map(told, bench.measured))}
    names = [_named(bench, row) for row in bench.measured]
    cells = [list(columns), *([told(row) for told in columns.values()] for row in bench.measured)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(columns))]
    first = max(len(name) for name in names)
    for name, line in zip(["", *names], cells, strict=True):
        shown = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        yield _GAP.join((name.ljust(first), *shown)).rstrip()


def _named(bench: Bench, row: Row) -> str:
    return ", ".join(filter(None, (bench.name(row), bench.settings(row))))


def _missing(bench: Bench) -> Iterator[str]:
    for row in bench.missing:
        yield f"{_named(bench, row)}  {row.status}: {wording.text(row.why)}"


def _ms(name: str) -> Callable[[Row], str]:
    return lambda row: "" if row.latency is None else _three(getattr(row.latency, name))


def _three(value: float | None) -> str:
    """Three digits, no exponent."""
    if value is None:
        return ""
    return (
        f"{value:,.0f}" if value >= 100 else f"{value:#.3g}".rstrip(".") if value >= 1e-3 else f"{value:.4f}"
    )


def _interval(row: Row) -> str:
    return f"{_ms('low')(row)}–{_ms('high')(row)}" if row.latency is not None else ""


def _sqnr(row: Row) -> str:
    if row.accuracy is None:
        return ""
    return "exact" if row.accuracy.sqnr == math.inf else f"{row.accuracy.sqnr:.1f}"


def _ratio(row: Row) -> str:
    if row.against is None:
        return ""
    return f"{row.against.standing} {figures.ratio(row)}".strip()


# The figures of a line; times in milliseconds.
_COLUMNS: Mapping[str, Callable[[Row], str]] = {
    "size": figures.size,
    "load ms": lambda row: _three(row.load_ms),
    "first ms": lambda row: _three(row.first_ms),
    "p50 ms": _ms("median"),
    "95 %": _interval,
    "p99 ms": _ms("p99"),
    "peak": lambda row: wording.human_size(row.memory.peak) if row.memory else "",
    "SQNR dB": _sqnr,
    "baseline": _ratio,
}
