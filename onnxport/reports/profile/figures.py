"""The figures that every form of a profile shows: a summary, the hottest nodes, groups of nodes, and names of nodes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from onnxport.profiling.report import Group, NodeTime, ProfileReport
from onnxport.reports import phrases
from onnxport.reports.phrases import shorten, text

HOTTEST = 10


def hottest(report: ProfileReport) -> list[NodeTime]:
    """Return the nodes that take most time, the slowest first."""
    return sorted(report.nodes, key=lambda node: -node.ms)[:HOTTEST]


def summary(report: ProfileReport) -> str:
    """Return "model.onnx: Conv takes 71 % of 9.41 ms"."""
    name = text(PurePath(report.model).name)
    if not report.by_op:
        return f"{name}: no node was timed"
    first = report.by_op[0]
    return f"{name}: {text(first.name)} takes {phrases.percent(first.share)} of {phrases.duration(report.run_ms)}"


def totals(report: ProfileReport) -> str:
    """Say how the nodes were timed, and compare the sum of their times with a run."""
    share = report.nodes_ms / report.run_ms if report.run_ms else 0.0
    outside = f"; a profiled run takes {phrases.duration(report.outside_ms)} outside of the nodes"
    return (
        f"{phrases.count(len(report.nodes), 'node')} in {text(report.ran_on)} on "
        f"{phrases.count(report.threads, 'thread')}, {phrases.count(report.runs, 'run')}; the nodes' times add up to "
        f"{phrases.duration(report.nodes_ms)}, {phrases.percent(share)} of a run without the profiler"
        + (outside if report.outside_ms else "")
    )


def tiles(report: ProfileReport) -> Iterator[tuple[str, str, str]]:
    """Yield the figures at the top of the page: name, value and remark."""
    yield "a run", phrases.duration(report.run_ms), "without the profiler"
    cost = report.profiled_ms / report.run_ms - 1 if report.run_ms else 0.0
    yield "with the profiler", phrases.duration(report.profiled_ms), f"{100 * cost:+.0f} %"
    # How many of the hottest nodes take half of the time: before each of them, less than half is spent.
    times = sorted((node.ms for node in report.nodes), reverse=True)
    spent = itertools.accumulate(times, initial=0.0)
    half = sum(before < 0.5 * sum(times) for before in itertools.islice(spent, len(times)))
    yield "half of the time", phrases.count(half, "node"), f"of {len(report.nodes):,}"
    traced = sum(node.share for node in report.nodes if node.sources)
    yield "traced to ONNX nodes", phrases.percent(traced), "of the time"


def groups(report: ProfileReport) -> dict[str, Sequence[Group]]:
    """Return the groups of nodes by the title of their table, without empty ones."""
    found = {
        "By operator": report.by_op,
        "By ONNX node": report.by_source,
        "By provider": _by_provider(report),
    }
    return {title: each for title, each in found.items() if each}


def _by_provider(report: ProfileReport) -> list[Group]:
    """Return the time of each execution provider; empty where there is only one."""
    nodes_of: dict[str, list[NodeTime]] = {}
    for node in report.nodes:
        nodes_of.setdefault(node.provider, []).append(node)
    if len(nodes_of) < 2:
        return []
    found = [
        Group(
            name=name or "unknown",
            count=len(nodes),
            ms=sum(node.ms for node in nodes),
            share=sum(node.share for node in nodes),
        )
        for name, nodes in nodes_of.items()
    ]
    return sorted(found, key=lambda group: -group.ms)


def node_title(node: NodeTime) -> str:
    """Return a node's figures, with its ONNX nodes, or its own name where these are unknown."""
    name = sources(node) or shorten(node.name)
    return f"{text(node.op)} {name}: {phrases.duration(node.ms)}, {phrases.percent(node.share)}"


def sources(node: NodeTime) -> str:
    """Return the ONNX nodes that it computes, three of them by name; empty where unknown or its own name."""
    if node.sources in ((), (node.name,)):
        return ""
    return phrases.name_list(list(map(shorten, node.sources)))


def scopes_of(node: NodeTime) -> tuple[str, ...]:
    """Return the scopes of its first ONNX node, outermost first: "encoder", "layer.0" of "/encoder/layer.0/Conv"."""
    name = node.sources[0] if node.sources else ""
    return tuple(part for part in name.split("/")[:-1] if part)
