"""The Markdown summary of a deployment: a row per runtime, then the fallbacks of each."""

from __future__ import annotations

from collections.abc import Iterator

from onnxport.deployment.report import DeploymentReport, Placement
from onnxport.reports import wording
from onnxport.reports.deployment import figures
from onnxport.reports.markdown import command_block, escape, note_lines, table

_LINES = 12  # for one runtime


def view(report: DeploymentReport) -> str:
    mark = f"{wording.MARKS['failed' if report.exit_code else 'proven']} " if report.strict else ""
    parts = [f"## {mark}{escape(figures.summary(report))}", escape(figures.totals(report))]
    rows = [
        (
            wording.MARKS[each.extent],
            escape(each.title),
            escape(figures.extent_text(each)),
            escape(figures.origin(each)),
            escape(figures.change(each)),
        )
        for each in report.placements
    ]
    parts.append(table(("", "runtime", "takes", "source", "what would help"), rows))
    for each in report.placements:
        parts += _details(each)
    parts += note_lines(report.notes)
    parts.append(command_block(figures.command(report)))
    return "\n\n".join(parts) + "\n"


def _details(placement: Placement) -> Iterator[str]:
    shown, rest = wording.cut(list(figures.details(placement)), _LINES)
    if placement.extent != "all" and shown:
        yield f"### {escape(placement.title)}"
        yield "\n".join(f"- {escape(line)}" for line in (*shown, *([f"… and {rest:,} more"] if rest else [])))
