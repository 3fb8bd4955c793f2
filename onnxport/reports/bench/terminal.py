"""A bench as lines of text: what all rows share, then a line for each, in at most 100 columns where names allow it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from onnxport.bench.providers import PROVIDERS
from onnxport.bench.report import BenchReport, Row
from onnxport.core.errors import PROVEN
from onnxport.reports import wording
from onnxport.reports.bench import figures
from onnxport.reports.bench.figures import Bench

_GAP = "  "
_SMALL = 0.1  # milliseconds


def bench_lines(report: BenchReport) -> str:
    """The table, and why rows have no figures, or no clear standing."""
    bench = Bench(report)
    return "\n".join([*_head(bench), *_table(bench), *_missing(bench), *_unclear(bench)])


def notes(report: BenchReport) -> list[str]:
    return [f"note: {note}" for note in report.notes]


def failures(report: BenchReport) -> Iterator[str]:
    """Why the command does not end with 0: row by row, or once for rows of an artefact with the same reason."""
    bench = Bench(report)
    for label, row in _grouped(bench, [row for row in report.rows if row.exit_code != PROVEN]):
        yield f"{label}: {row.why}"
    for row in report.rows:
        if row.exit_code == PROVEN and figures.fails(row):
            yield f"{bench.label(row)}: {figures.standing(row)}"


def _head(bench: Bench) -> Iterator[str]:
    shared = f"{bench.shared}; " if bench.shared else ""
    yield f"{shared}{figures.measuring(bench.report)}"


def _table(bench: Bench) -> Iterator[str]:
    if not bench.measured:
        return
    unit = _unit(bench.measured)
    figured = {name: told for name, told in _figures(unit).items() if any(map(told, bench.measured))}
    settings = _settings(bench.rows)
    lines = [["", *settings, *figured]]
    for row in bench.measured:
        set_to = (getattr(row.settings, name) for name in settings)
        chosen = ["" if each is None else str(each) for each in set_to]
        lines.append([bench.name(row), *chosen, *(told(row) for told in figured.values())])
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    for first, *others in lines:
        shown = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        yield _GAP.join((first.ljust(widths[0]), *shown)).rstrip()


def _settings(rows: Sequence[Row]) -> list[str]:
    """Those that tell rows apart; what is the default of the only runtime of a file needs no column."""
    several = {
        name: {getattr(row.settings, name) for row in rows} - {None} for name in ("threads", "level", "batch")
    }
    pairs = {(row.artifact, row.settings.runtime) for row in rows}
    told = [] if len(pairs) == len({path for path, _ in pairs}) else ["runtime"]
    usual = all(
        row.settings.provider in (None, PROVIDERS.get(row.settings.runtime, (None,))[0]) for row in rows
    )
    told += [] if usual else ["provider"]
    return [*told, *(name for name, values in several.items() if len(values) > 1)]


def _missing(bench: Bench) -> Iterator[str]:
    for label, row in _grouped(bench, bench.missing):
        yield f"{label}  {row.status}: {wording.text(row.why)}"


def _unclear(bench: Bench) -> Iterator[str]:
    """Why a row beside its baseline is neither kept nor slower."""
    for row in bench.measured:
        if row.against is not None and row.against.standing == "unclear":
            yield f"{bench.label(row)}  {figures.standing(row)}"


def _grouped(bench: Bench, rows: Sequence[Row]) -> Iterator[tuple[str, Row]]:
    """Rows without figures, the first of those that are of one artefact and have one reason, with what all of these
    are called: "model.onnx, cuda"."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.artifact, row.why), []).append(row)
    telling = _settings(bench.rows)
    for group in groups.values():
        each = [list(figures.settings_of(row.settings, telling)) for row in group]
        shared = [setting for setting in each[0] if all(setting in others for others in each)]
        count = f" ({len(group)} rows)" if len(group) > 1 else ""
        yield f"{', '.join((bench.name(group[0]), *shared))}{count}", group[0]


def _unit(rows: Sequence[Row]) -> tuple[str, float]:
    """What runs are told in, and that of a millisecond."""
    fastest = min(row.latency.median for row in rows if row.latency is not None)
    return ("µs", 1000.0) if fastest < _SMALL else ("ms", 1.0)


def _time(name: str, factor: float) -> Callable[[Row], str]:
    return lambda row: "" if row.latency is None else _three(factor * getattr(row.latency, name))


def _three(value: float | None) -> str:
    """Three digits, no exponent."""
    if value is None:
        return ""
    return (
        f"{value:,.0f}" if value >= 100 else f"{value:#.3g}".rstrip(".") if value >= 1e-3 else f"{value:.4f}"
    )


def _sqnr(row: Row) -> str:
    if row.accuracy is None:
        return ""
    return "exact" if row.accuracy.sqnr == math.inf else f"{row.accuracy.sqnr:.1f}"


def _ratio(row: Row) -> str:
    if row.against is None:
        return ""
    return f"{row.against.standing} {figures.ratio(row)}".strip()


def _figures(unit: tuple[str, float]) -> Mapping[str, Callable[[Row], str]]:
    """The figures of a line by their heading."""
    name, factor = unit
    low, high = _time("low", factor), _time("high", factor)
    return {
        "size": figures.size,
        "load ms": lambda row: _three(row.load_ms),
        "first ms": lambda row: _three(row.first_ms),
        f"p50 {name}": _time("median", factor),
        "95 %": lambda row: f"{low(row)}–{high(row)}",
        f"p99 {name}": _time("p99", factor),
        "peak": lambda row: wording.human_size(row.memory.peak) if row.memory else "",
        "SQNR dB": _sqnr,
        "baseline": _ratio,
    }
