"""What all forms show of a profile: the answer in a sentence, the hottest nodes, and the groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from onnxport.profiling.report import Group, NodeTime, ProfileReport
from onnxport.reports import wording
from onnxport.reports.wording import text

HOTTEST = 10


def hottest(report: ProfileReport) -> list[NodeTime]:
    """The nodes that take most, the slowest first."""
    return sorted(report.nodes, key=lambda node: -node.ms)[:HOTTEST]


def summary(report: ProfileReport) -> str:
    """ "model.onnx: Conv takes 71 % of 9.41 ms"."""
    name = text(PurePath(report.model).name)
    if not report.by_op:
        return f"{name}: nothing was timed"
    first = report.by_op[0]
    return f"{name}: {text(first.name)} takes {wording.percent(first.share)} of {wording.duration(report.run_ms)}"


def totals(report: ProfileReport) -> str:
    """How the figures came about, and how far they add up."""
    share = report.nodes_ms / report.run_ms if report.run_ms else 0.0
    outside = (
        f"; around them a profiled run takes {wording.duration(report.outside_ms)}"
        if report.outside_ms
        else ""
    )
    return (
        f"{wording.count(len(report.nodes), 'node')} in {text(report.ran_on)} on "
        f"{wording.count(report.threads, 'thread')}, {wording.count(report.runs, 'run')}; the nodes' times add up to "
        f"{wording.duration(report.nodes_ms)}, {wording.percent(share)} of a run without the profiler{outside}"
    )


def tiles(report: ProfileReport) -> Iterator[tuple[str, str, str]]:
    """Figures of the whole: what, how much, and a remark."""
    yield "a run", wording.duration(report.run_ms), "without the profiler"
    cost = report.profiled_ms / report.run_ms - 1 if report.run_ms else 0.0
    yield "with the profiler", wording.duration(report.profiled_ms), f"{100 * cost:+.0f} %"
    few = _half(report.nodes)
    yield "half of the time", wording.count(few, "node"), f"of {len(report.nodes):,}"
    known = sum(node.share for node in report.nodes if node.sources)
    yield "traced to ONNX nodes", wording.percent(known), "of the time"


def _half(nodes: Sequence[NodeTime]) -> int:
    """How many of the slowest nodes it takes for half of the time."""
    left, count = 0.5 * sum(node.ms for node in nodes), 0
    for node in sorted(nodes, key=lambda node: -node.ms):
        if left <= 0:
            break
        left, count = left - node.ms, count + 1
    return count


def by_provider(report: ProfileReport) -> list[Group]:
    """Who ran how much, where it was not one alone."""
    groups: dict[str, list[NodeTime]] = {}
    for node in report.nodes:
        groups.setdefault(node.provider, []).append(node)
    if len(groups) < 2:
        return []
    found = [
        Group(
            name=name or "not told",
            count=len(nodes),
            ms=sum(node.ms for node in nodes),
            share=sum(node.share for node in nodes),
        )
        for name, nodes in groups.items()
    ]
    return sorted(found, key=lambda group: -group.ms)
