"""The Markdown summary of a profile: the hottest nodes and the groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxport.profiling.report import Group, ProfileReport
from onnxport.reports import phrases
from onnxport.reports.markdown import command_block, escape, note_lines, table
from onnxport.reports.profile import figures

_GROUPS = 15


def view(report: ProfileReport) -> str:
    parts = [f"## {escape(figures.summary(report))}", escape(figures.totals(report))]
    if report.nodes:
        parts += ["### Hottest nodes", _hottest(report)]
    for title, groups in figures.groups(report).items():
        parts += _groups(title, groups)
    parts += note_lines(report.notes)
    parts.append(command_block(report.command))
    return "\n\n".join(parts) + "\n"


def _hottest(report: ProfileReport) -> str:
    rows = [
        (
            escape(node.op),
            escape(phrases.shorten(node.name)),
            escape(figures.sources(node)),
            phrases.duration(node.ms),
            phrases.percent(node.share),
        )
        for node in figures.hottest(report)
    ]
    return table(("operator", "node", "ONNX nodes", "time", "share"), rows)


def _groups(title: str, groups: Sequence[Group]) -> Iterator[str]:
    shown, rest = phrases.cut(groups, _GROUPS)
    rows = [
        (
            escape(phrases.shorten(group.name)),
            f"{group.count:,}",
            phrases.duration(group.ms),
            phrases.percent(group.share),
        )
        for group in shown
    ]
    yield f"### {title}"
    yield table(("", "nodes", "time", "share"), rows)
    if rest:
        yield f"… and {rest:,} more"
