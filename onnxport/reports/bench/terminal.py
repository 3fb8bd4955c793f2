"""A bench as lines of text: what all rows share, then a line for each, in at most 100 columns where names allow it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from onnxport.bench.providers import PROVIDERS
from onnxport.bench.report import BenchReport, Row
from onnxport.core.errors import PROVEN
from onnxport.reports import phrases
from onnxport.reports.bench import figures
from onnxport.reports.bench.figures import Bench

_SMALL = 0.1  # milliseconds; faster models are shown in microseconds


def bench_lines(report: BenchReport) -> str:
    """Return the table, then the reasons of rows that are not measured or unclear against the baseline."""
    bench = Bench(report)
    shared = f"{bench.shared}; " if bench.shared else ""
    head = f"{shared}{figures.method(bench.report)}"
    if report.machine.device:
        head = f"{phrases.text(report.machine.device)}; {head}"
    lines = [head, *_table(bench)]
    lines += [f"{bench.label(row)}  {said}" for row in bench.measured if (said := figures.delegated(row))]
    for label, row in _group(bench, bench.unmeasured):
        lines.append(f"{label}  {row.status}: {phrases.text(row.why)}")
    for row in bench.measured:
        if row.against is not None and row.against.standing == "unclear":
            lines.append(f"{bench.label(row)}  {figures.standing(row)}")
    return "\n".join(lines)


def failures(report: BenchReport) -> Iterator[str]:
    """Yield why the command does not end with 0; rows of an artefact with the same reason share a line."""
    bench = Bench(report)
    for label, row in _group(bench, [row for row in report.rows if row.exit_code != PROVEN]):
        yield f"{label}: {row.why}"
    for row in report.rows:
        if row.exit_code == PROVEN and figures.fails(row):
            for said in filter(None, (figures.slowness(row), *row.over)):
                yield f"{bench.label(row)}: {said}"


def _table(bench: Bench) -> Iterator[str]:
    if not bench.measured:
        return
    columns = {
        name: text for name, text in _columns(bench.measured).items() if any(map(text, bench.measured))
    }
    settings = _shown_settings(bench.rows)
    lines = [["", *settings, *columns]]
    for row in bench.measured:
        values = (getattr(row.settings, name) for name in settings)
        shown = ["" if value is None else str(value) for value in values]
        lines.append([bench.name(row), *shown, *(text(row) for text in columns.values())])
    yield from phrases.align(lines, left=1)


def _shown_settings(rows: Sequence[Row]) -> list[str]:
    """Return the settings that tell rows apart; a file's default runtime and provider need no column."""
    values = {
        name: {getattr(row.settings, name) for row in rows} - {None} for name in ("threads", "level", "batch")
    }
    pairs = {(row.artifact, row.settings.runtime) for row in rows}
    shown = [] if len(pairs) == len({path for path, _ in pairs}) else ["runtime"]
    has_defaults = all(
        row.settings.provider in (None, PROVIDERS.get(row.settings.runtime, (None,))[0]) for row in rows
    )
    shown += [] if has_defaults else ["provider"]
    return [*shown, *(name for name, found in values.items() if len(found) > 1)]


def _group(bench: Bench, rows: Sequence[Row]) -> Iterator[tuple[str, Row]]:
    """Group rows of one artefact with one reason; yield the group's label, "model.onnx, cuda", and its first row."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.artifact, row.why), []).append(row)
    shown = _shown_settings(bench.rows)
    for group in groups.values():
        settings = [list(figures.setting_texts(row.settings, shown)) for row in group]
        shared = [setting for setting in settings[0] if all(setting in others for others in settings)]
        count = f" ({len(group)} rows)" if len(group) > 1 else ""
        yield f"{', '.join((bench.name(group[0]), *shared))}{count}", group[0]


def _columns(rows: Sequence[Row]) -> Mapping[str, Callable[[Row], str]]:
    fastest = min(row.latency.median for row in rows if row.latency is not None)
    unit, factor = ("µs", 1000.0) if fastest < _SMALL else ("ms", 1.0)

    def time(name: str) -> Callable[[Row], str]:
        def figure(row: Row) -> str:
            ms = None if row.latency is None else getattr(row.latency, name)
            return "" if ms is None else _three(factor * ms)

        return figure

    def sqnr(row: Row) -> str:
        found = None if row.accuracy is None else row.accuracy.sqnr
        return "" if found is None else "exact" if found == math.inf else f"{found:.1f}"

    low, high = time("low"), time("high")
    return {
        "size": figures.size,
        "load ms": lambda row: _three(row.load_ms),
        "1st ms": lambda row: _three(row.first_ms),
        "2nd ms": lambda row: _three(row.second_ms),
        f"p50 {unit}": time("median"),
        "95 % CI": lambda row: f"{low(row)}–{high(row)}",
        f"p99 {unit}": time("p99"),
        "peak": figures.peak_memory,
        "SQNR dB": sqnr,
        "baseline": lambda row: (
            "" if row.against is None else f"{row.against.standing} {figures.ratio(row)}".strip()
        ),
    }


def _three(value: float | None) -> str:
    """Return three digits without an exponent."""
    if value is None:
        return ""
    return (
        f"{value:,.0f}" if value >= 100 else f"{value:#.3g}".rstrip(".") if value >= 1e-3 else f"{value:.4f}"
    )
