"""The file of ONNX Runtime's profiler: events of nodes and of runs, in microseconds."""

from __future__ import annotations

import bisect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxport.formats.graph import Node, OperatorGraph
from onnxport.profiling.recording import Run, Span

_KERNEL = "_kernel_time"
_RUN = "model_run"

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Costs:
    """Microseconds that are not a node's own.

    Attributes:
        within: what the profiler adds to each node's time.
        between: from the end of a node to the start of the next.
        outside: before and after all nodes, in a run without the profiler.
    """

    within: float
    between: float
    outside: float


@dataclass
class _Execution:
    """One execution of a node, with those in its bodies."""

    event: Event
    inner: list[_Execution]

    @property
    def label(self) -> tuple[str, str]:
        return self.event["name"].removesuffix(_KERNEL), self.event["args"].get("op_name", "")

    @property
    def duration(self) -> float:
        return midpoint(self.event["dur"])


def midpoint(duration: int) -> float:
    """Return the expected value of a duration that was truncated to whole microseconds."""
    return duration + 0.5


def read_events(file: Path) -> list[Event]:
    """Read all events; names are not escaped, so invalid UTF-8 and control characters are accepted."""
    return list(json.loads(file.read_bytes().decode(errors="replace"), strict=False))


def kernels_by_run(events: Sequence[Event]) -> list[tuple[Event, list[Event]]]:
    """Return every run with its nodes, matched by time.

    The order of events is that of their ends in some versions of ONNX Runtime and of their starts in others.
    """
    runs = sorted((each for each in events if each["name"] == _RUN), key=lambda run: run["ts"])
    starts = [run["ts"] for run in runs]
    kernels: list[list[Event]] = [[] for _ in runs]
    for event in events:
        if event["cat"] == "Node" and event["name"].endswith(_KERNEL):
            place = bisect.bisect_right(starts, event["ts"]) - 1
            if place >= 0:
                kernels[place].append(event)
    return list(zip(runs, kernels, strict=True))


def read_run(run: Event, kernels: Sequence[Event], graph: OperatorGraph, costs: Costs) -> Run:
    """Return one run with its nodes matched to `graph`, the graph that ONNX Runtime executes."""
    places = {node: place for place, node in enumerate(graph.walk())}
    spans: list[Span] = []
    holders = frozenset((node.name, node.op) for node in places if node.bodies)
    _add_spans(_nest(kernels, holders), graph, places, costs, spans)
    return Run(run["ts"], run["dur"], tuple(sorted(spans, key=lambda span: span.start)))


def _nest(kernels: Sequence[Event], holders: frozenset[tuple[str, str]]) -> list[_Execution]:
    """Return the executions of the main graph; those in bodies are nested in the nodes that hold them."""
    found = [_Execution(event, []) for event in kernels]
    # If two start in the same microsecond, the one with bodies holds the other.
    found.sort(key=lambda each: (each.event["ts"], each.label not in holders))
    top: list[_Execution] = []
    open_: list[_Execution] = []
    for each in found:
        while open_ and each.event["ts"] > open_[-1].event["ts"] + open_[-1].event["dur"]:
            open_.pop()
        (open_[-1].inner if open_ else top).append(each)
        if each.label in holders:
            open_.append(each)
    return top


def _add_spans(
    executed: Sequence[_Execution],
    graph: OperatorGraph,
    places: Mapping[Node, int],
    costs: Costs,
    spans: list[Span],
) -> None:
    for each, node in zip(executed, _match(executed, graph), strict=True):
        name, op = each.label
        inner = sum(one.duration + costs.between for one in each.inner)
        spans.append(
            Span(
                node=-1 if node is None else places[node],
                name=name,
                op=op,
                provider=each.event["args"].get("provider", ""),
                start=each.event["ts"],
                duration=each.event["dur"],
                own=each.duration - inner - costs.within,
            )
        )
        if each.inner:
            _add_spans(each.inner, _body(each.inner, node), places, costs, spans)


def _match(executed: Sequence[_Execution], graph: OperatorGraph) -> list[Node | None]:
    """Return the node of each execution: by the order of the file, or else by name."""
    count = len(graph.nodes)
    if count and len(executed) % count == 0:  # a loop's body runs once per turn
        cycled = [graph.nodes[place % count] for place in range(len(executed))]
        if all(each.label[1] == node.op for each, node in zip(executed, cycled, strict=True)):
            return list(cycled)
    named: dict[tuple[str, str], list[Node]] = {}
    for node in graph.nodes:
        named.setdefault((node.name, node.op), []).append(node)
    seen: dict[tuple[str, str], int] = {}
    found: list[Node | None] = []
    for each in executed:
        candidates = named.get(each.label)
        turn = seen[each.label] = seen.get(each.label, -1) + 1
        found.append(candidates[turn % len(candidates)] if candidates else None)
    return found


def _body(inner: Sequence[_Execution], node: Node | None) -> OperatorGraph:
    """Return the body of `node` that was executed: the one with most of the nodes."""
    if node is None or not node.bodies:
        return OperatorGraph([])
    labels = [each.label for each in inner]

    def known(body: OperatorGraph) -> int:
        names = {(one.name, one.op) for one in body.nodes}
        ops = {one.op for one in body.nodes if not one.name}
        return sum(label in names or label[1] in ops for label in labels)

    return max(node.bodies.values(), key=known)
