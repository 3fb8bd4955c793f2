"""The report of a profile as Markdown: the hottest nodes and the groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxport.profiling.report import Group, ProfileReport
from onnxport.reports import wording
from onnxport.reports.markdown import escaped, failure, table
from onnxport.reports.profile import figures, flame

__all__ = ["failure", "view"]

_GROUPS = 15


def view(report: ProfileReport) -> str:
    parts = [f"## {escaped(figures.summary(report))}", escaped(figures.totals(report))]
    if report.nodes:
        parts += ["### The hottest", _hottest(report)]
    for title, groups in (
        ("By operator", report.by_op),
        ("By ONNX node", report.by_source),
        ("By who ran it", figures.by_provider(report)),
    ):
        parts += _groups(title, groups)
    parts += [f"- note: {escaped(note)}" for note in report.notes]
    # An indented block: no run of backticks in an argument can end it.
    parts.append(f"To reproduce:\n\n    {wording.text(report.command)}")
    return "\n\n".join(parts) + "\n"


def _hottest(report: ProfileReport) -> str:
    rows = [
        (
            escaped(node.op),
            escaped(flame.shortened(node.name)),
            escaped(flame.origin(node)),
            wording.duration(node.ms),
            wording.percent(node.share),
        )
        for node in figures.hottest(report)
    ]
    return table(("operator", "node", "ONNX nodes", "time", "share"), rows)


def _groups(title: str, groups: Sequence[Group]) -> Iterator[str]:
    if not groups:
        return
    shown, rest = wording.cut(groups, _GROUPS)
    rows = [
        (
            escaped(flame.shortened(group.name)),
            f"{group.count:,}",
            wording.duration(group.ms),
            wording.percent(group.share),
        )
        for group in shown
    ]
    yield f"### {title}"
    yield table(("", "nodes", "time", "share"), rows)
    if rest:
        yield f"… and {rest:,} more"
