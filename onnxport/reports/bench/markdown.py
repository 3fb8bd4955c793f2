"""The Markdown summary of a bench: a table of all rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxport.bench.report import BenchReport, Row
from onnxport.reports import wording
from onnxport.reports.bench import figures
from onnxport.reports.bench.figures import Bench
from onnxport.reports.markdown import command_block, escape, note_lines, table

_ROWS = 100


def view(report: BenchReport) -> str:
    bench = Bench(report)
    parts = [
        f"## {wording.MARKS[bench.kind]} {escape(bench.summary)}",
        escape("; ".join(filter(None, (bench.totals, bench.shared)))),
    ]
    parts += [_table(bench, bench.measured)] if bench.measured else []
    parts += _unmeasured_parts(bench)
    parts += note_lines(report.notes)
    parts += _ending(report)
    return "\n\n".join(parts) + "\n"


def _table(bench: Bench, rows: Sequence[Row]) -> str:
    shown, rest = wording.cut(rows, _ROWS)
    names = figures.columns(shown)
    head = ["artefact", *(["settings"] if any(map(bench.settings, shown)) else []), *names]
    head += ["against the baseline"] if bench.has_baseline else []
    lines = []
    for row in shown:
        cells = {"artefact": bench.name(row), "settings": bench.settings(row)}
        cells |= {name: figures.COLUMNS[name](row) for name in names}
        cells["against the baseline"] = _standing(row)
        lines.append([escape(cells[name]) for name in head])
    more = f"\n\n… and {wording.count(rest, 'more row')}" if rest else ""
    return table(head, lines) + more


def _standing(row: Row) -> str:
    return f"{wording.MARKS[row.against.standing]} {figures.standing(row)}" if row.against is not None else ""


def _unmeasured_parts(bench: Bench) -> Iterator[str]:
    if bench.unmeasured:
        yield "### Not measured"
        yield "\n".join(
            f"- **{escape(bench.label(row))}**: {row.status}, {escape(' '.join(row.why.split()))}"
            for row in bench.unmeasured
        )


def _ending(report: BenchReport) -> Iterator[str]:
    """Yield method, machine and versions, then the command."""
    found, versions = report.machine, (f"{name} {version}" for name, version in report.versions.items())
    place = f"{found.processor}, {wording.count(found.cores, 'core')}, {found.system}"
    yield escape("; ".join((figures.method(report), place, ", ".join(versions))))
    yield command_block(report.command)
