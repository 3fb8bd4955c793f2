"""A profile as lines of text: the time of a run, the hottest nodes, and groups of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxport.profiling.report import Group, ProfileReport
from onnxport.reports import phrases
from onnxport.reports.profile import figures

_GROUPS = 10
_WIDEST = 60  # columns of a name
_BAR = 20  # columns of the longest bar


def profile_lines(report: ProfileReport, *, detailed: bool = False) -> str:
    """Return a line of totals, then the tables; `detailed` shows all nodes and groups instead of the slowest."""
    lines = [figures.summary(report), figures.totals(report)]
    if report.nodes:
        title = "nodes in order" if detailed else "hottest nodes"
        nodes = report.nodes if detailed else figures.hottest(report)
        rows = (
            (node.share, (phrases.duration(node.ms), phrases.text(node.op), *map(_cut, names)))
            for node in nodes
            for names in [(phrases.shorten(node.name), figures.sources(node))]
        )
        lines += ["", title, *_rows(rows)]
        lines += _groups("by operator", report.by_op, detailed)
        lines += _groups("by ONNX node", report.by_source, detailed)
    return "\n".join(lines)


def _groups(title: str, groups: Sequence[Group], detailed: bool) -> list[str]:
    shown = groups if detailed else groups[:_GROUPS]
    rows = (
        (each.share, (phrases.duration(each.ms), f"{each.count:,}x", _cut(phrases.shorten(each.name))))
        for each in shown
    )
    rest = len(groups) - len(shown)
    return ["", title, *_rows(rows), *([f"  ... and {rest:,} more"] if rest else [])]


def _rows(rows: Iterator[tuple[float, tuple[str, ...]]]) -> Iterator[str]:
    """Yield lines of columns: the share as a bar and as a number, then the cells."""
    table = list(rows)
    most = max(share for share, _ in table) or 1.0
    widths = [max(map(len, column)) for column in zip(*(cells for _, cells in table), strict=True)]
    for share, (time, *others) in table:
        bar = "#" * round(_BAR * share / most)
        cells = [cell.ljust(width) for cell, width in zip(others, widths[1:], strict=True)]
        texts = "  ".join([time.rjust(widths[0]), *cells])
        yield f"  {bar:<{_BAR}} {phrases.percent(share):>6}  {texts}".rstrip()


def _cut(name: str) -> str:
    """Return the end of a long name: names of a model differ there."""
    return name if len(name) <= _WIDEST else f"…{name[1 - _WIDEST :]}"
