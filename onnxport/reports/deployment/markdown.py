"""Where a model runs as Markdown: a row per runtime, then what keeps it from which of them."""

from __future__ import annotations

from collections.abc import Iterator

from onnxport.deployment.report import DeploymentReport, Placement
from onnxport.reports import wording
from onnxport.reports.deployment import figures
from onnxport.reports.markdown import escaped, failure, table

__all__ = ["failure", "view"]

_LINES = 12  # of one runtime


def view(report: DeploymentReport) -> str:
    mark = f"{wording.MARKS['failed' if report.exit_code else 'proven']} " if report.strict else ""
    parts = [f"## {mark}{escaped(figures.summary(report))}", escaped(figures.totals(report))]
    rows = [
        (
            wording.MARKS[each.extent],
            escaped(each.title),
            escaped(figures.taken(each)),
            escaped(figures.origin(each)),
            escaped(figures.mended(each)),
        )
        for each in report.placements
    ]
    parts.append(table(("", "runtime", "takes", "told by", "what would mend it"), rows))
    for each in report.placements:
        parts += _details(each)
    parts += [f"- note: {escaped(note)}" for note in report.notes]
    # An indented block: no run of backticks in an argument can end it.
    parts.append(f"To reproduce:\n\n    {wording.text(figures.command(report))}")
    return "\n\n".join(parts) + "\n"


def _details(placement: Placement) -> Iterator[str]:
    shown, rest = wording.cut(list(figures.told(placement)), _LINES)
    if placement.extent != "all" and shown:
        yield f"### {escaped(placement.title)}"
        yield "\n".join(
            f"- {escaped(line)}" for line in (*shown, *([f"… and {rest:,} more"] if rest else []))
        )
