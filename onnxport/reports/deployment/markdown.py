"""The Markdown summary of a deployment: a row per runtime, then the fallbacks of each."""

from __future__ import annotations

from onnxport.deployment.report import DeploymentReport
from onnxport.reports import phrases
from onnxport.reports.deployment import figures
from onnxport.reports.markdown import command_block, escape, note_lines, table

_LINES = 12  # for one runtime


def view(report: DeploymentReport) -> str:
    mark = f"{phrases.MARKS['failed' if report.exit_code else 'proven']} " if report.strict else ""
    parts = [f"## {mark}{escape(figures.summary(report))}", escape(figures.totals(report))]
    rows = [
        (
            phrases.MARKS[each.extent],
            escape(each.title),
            escape(figures.extent_text(each)),
            escape(figures.origin(each)),
            escape(figures.change(each)),
        )
        for each in report.placements
    ]
    parts.append(table(("", "runtime", "takes", "source", "what would help"), rows))
    for each in report.placements:
        shown, rest = phrases.cut(list(figures.details(each)), _LINES)
        if each.extent != "all" and shown:
            more = [f"… and {rest:,} more"] if rest else []
            parts += [f"### {escape(each.title)}", "\n".join(f"- {escape(line)}" for line in (*shown, *more))]
    parts += note_lines(report.notes)
    parts.append(command_block(figures.command(report)))
    return "\n\n".join(parts) + "\n"
