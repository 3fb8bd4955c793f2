"""The report of a profile as lines of text: how long a run takes, the hottest nodes, and groups of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxport.profiling.report import Group, NodeTime, ProfileReport
from onnxport.reports import wording
from onnxport.reports.profile import figures, flame

_GROUPS = 10
_WIDEST = 60  # columns of a name
_BAR = 20  # columns of the longest bar


def profile_lines(report: ProfileReport, *, detailed: bool = False) -> str:
    """A line for the whole, then the tables.

    Args:
        detailed: all nodes and groups instead of the slowest.
    """
    lines = [figures.summary(report), figures.totals(report)]
    if report.nodes:
        nodes = list(report.nodes) if detailed else figures.hottest(report)
        lines += [
            "",
            "nodes in order" if detailed else "hottest nodes",
            *_rows(_node_row(node) for node in nodes),
        ]
        lines += _groups("by operator", report.by_op, detailed)
        lines += _groups("by ONNX node", report.by_source, detailed)
    return "\n".join(lines)


def _node_row(node: NodeTime) -> tuple[float, tuple[str, ...]]:
    comes_from = _cut(flame.origin(node))
    return node.share, (
        wording.duration(node.ms),
        wording.text(node.op),
        _cut(flame.shortened(node.name)),
        comes_from,
    )


def _groups(title: str, groups: Sequence[Group], detailed: bool) -> list[str]:
    shown = groups if detailed else groups[:_GROUPS]
    rows = (
        (g.share, (wording.duration(g.ms), f"{g.count:,}x", _cut(flame.shortened(g.name)))) for g in shown
    )
    rest = len(groups) - len(shown)
    return ["", title, *_rows(rows), *([f"  ... and {rest:,} more"] if rest else [])]


def _rows(rows: Iterator[tuple[float, tuple[str, ...]]]) -> Iterator[str]:
    """Shares as bars and numbers, then the cells, in columns."""
    table = list(rows)
    most = max(share for share, _ in table) or 1.0
    widths = [max(map(len, column)) for column in zip(*(cells for _, cells in table), strict=True)]
    for share, (time, *others) in table:
        bar = "#" * round(_BAR * share / most)
        texts = [
            time.rjust(widths[0]),
            *(cell.ljust(width) for cell, width in zip(others, widths[1:], strict=True)),
        ]
        yield f"  {bar:<{_BAR}} {wording.percent(share):>6}  {'  '.join(texts)}".rstrip()


def _cut(name: str) -> str:
    """The end of a long name, which tells it from others."""
    return name if len(name) <= _WIDEST else f"…{name[1 - _WIDEST :]}"
