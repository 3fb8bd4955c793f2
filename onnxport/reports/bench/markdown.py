"""The Markdown summary of a bench: a table of all rows."""

from __future__ import annotations

from collections.abc import Sequence

from onnxport.bench.report import BenchReport, Row
from onnxport.reports import phrases
from onnxport.reports.bench import figures
from onnxport.reports.bench.figures import Bench
from onnxport.reports.markdown import command_block, escape, note_lines, table

_ROWS = 100


def view(report: BenchReport) -> str:
    bench = Bench(report)
    parts = [
        f"## {phrases.MARKS[bench.kind]} {escape(bench.summary)}",
        escape("; ".join(filter(None, (bench.totals, bench.shared)))),
    ]
    parts += [_table(bench, bench.measured)] if bench.measured else []
    if bench.unmeasured:
        reasons = (f"{row.status}, {escape(' '.join(row.why.split()))}" for row in bench.unmeasured)
        labels = (f"- **{escape(bench.label(row))}**" for row in bench.unmeasured)
        parts += ["### Not measured", "\n".join(map(": ".join, zip(labels, reasons, strict=True)))]
    found, versions = report.machine, (f"{name} {version}" for name, version in report.versions.items())
    place = f"{found.processor}, {phrases.count(found.cores, 'core')}, {found.system}"
    parts += note_lines(report.notes)
    parts += [
        escape("; ".join((figures.method(report), place, ", ".join(versions)))),
        command_block(report.command),
    ]
    return "\n\n".join(parts) + "\n"


def _table(bench: Bench, rows: Sequence[Row]) -> str:
    shown, rest = phrases.cut(rows, _ROWS)
    names = figures.columns(shown)
    head = ["artefact", *(["settings"] if any(map(bench.settings, shown)) else []), *names]
    head += ["against the baseline"] if bench.has_baseline else []
    lines = []
    for row in shown:
        cells = {"artefact": bench.name(row), "settings": bench.settings(row)}
        cells |= {name: figures.COLUMNS[name](row) for name in names}
        if row.against is not None:
            mark = phrases.MARKS[row.against.standing]
            cells["against the baseline"] = f"{mark} {figures.standing(row)}"
        lines.append([escape(cells.get(name, "")) for name in head])
    more = f"\n\n… and {phrases.count(rest, 'more row')}" if rest else ""
    return table(head, lines) + more
