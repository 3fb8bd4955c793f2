"""The report of a bench as Markdown: a table that fits a job's summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxport.bench.report import BenchReport, Row
from onnxport.reports import wording
from onnxport.reports.bench import figures
from onnxport.reports.bench.figures import Bench
from onnxport.reports.markdown import escaped, failure, table

__all__ = ["failure", "view"]

_ROWS = 100


def view(report: BenchReport) -> str:
    bench = Bench(report)
    parts = [
        f"## {wording.MARKS[bench.kind]} {escaped(bench.summary)}",
        escaped("; ".join(filter(None, (bench.totals, bench.shared)))),
    ]
    parts += [_table(bench, bench.measured)] if bench.measured else []
    parts += _missing(bench)
    parts += [f"- note: {escaped(note)}" for note in report.notes]
    parts += _ending(report)
    return "\n\n".join(parts) + "\n"


def _table(bench: Bench, rows: Sequence[Row]) -> str:
    shown, rest = wording.cut(rows, _ROWS)
    names = figures.columns(shown)
    head = ["artefact", *(["settings"] if any(map(bench.settings, shown)) else []), *names]
    head += ["beside the baseline"] if bench.gated else []
    lines = []
    for row in shown:
        cells = {"artefact": bench.name(row), "settings": bench.settings(row)}
        cells |= {name: figures.COLUMNS[name](row) for name in names}
        cells["beside the baseline"] = _standing(row)
        lines.append([escaped(cells[name]) for name in head])
    more = f"\n\n… and {wording.count(rest, 'more row')}" if rest else ""
    return table(head, lines) + more


def _standing(row: Row) -> str:
    return f"{wording.MARKS[row.against.standing]} {figures.standing(row)}" if row.against is not None else ""


def _missing(bench: Bench) -> Iterator[str]:
    if bench.missing:
        yield "### Without figures"
        yield "\n".join(
            f"- **{escaped(bench.label(row))}**: {row.status}, {escaped(' '.join(row.why.split()))}"
            for row in bench.missing
        )


def _ending(report: BenchReport) -> Iterator[str]:
    """How it was measured, with what, and by which command."""
    found, versions = report.machine, (f"{name} {version}" for name, version in report.versions.items())
    place = f"{found.processor}, {wording.count(found.cores, 'core')}, {found.system}"
    yield escaped("; ".join((figures.measuring(report), place, ", ".join(versions))))
    # An indented block: no run of backticks in an argument can end it.
    yield f"To reproduce:\n\n    {wording.text(report.command)}"
