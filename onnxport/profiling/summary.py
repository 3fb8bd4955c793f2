"""The times of nodes and of groups of nodes in a recording."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from onnxport.formats.graph import Node
from onnxport.profiling.interleaving import faster_half
from onnxport.profiling.recording import Recording, Span
from onnxport.profiling.report import Group, NodeTime

_LISTED = 3  # more sources are shown as the first, the last and their number
UNKNOWN = "(unknown)"


def node_times(recording: Recording, sources: Mapping[Node, Sequence[Node]]) -> tuple[NodeTime, ...]:
    """Return the time of each executed node, in the order of execution; `sources` are what it computes of the model."""
    nodes = list(recording.executed.walk())
    # Means over the same runs add up to a run. Medians of nodes would not: a disturbance hits another node each time.
    runs = [recording.runs[place] for place in faster_half([run.duration for run in recording.runs])]
    order: dict[tuple[int, str, str], Span] = {}
    taken: dict[tuple[int, str, str], float] = {}
    for run in runs:
        for span in run.spans:
            key = (span.node, span.name, span.op)
            order.setdefault(key, span)
            taken[key] = taken.get(key, 0.0) + span.own
    # The profiler's time is an average; a node may take less.
    times = {key: max(0.0, microseconds) / len(runs) / 1000 for key, microseconds in taken.items()}
    whole = sum(times.values()) or 1.0
    found = []
    for key, span in order.items():
        origin = sources.get(nodes[span.node], ()) if span.node >= 0 else ()
        found.append(
            NodeTime(
                name=span.name,
                op=span.op,
                ms=times[key],
                share=times[key] / whole,
                provider=span.provider,
                sources=tuple(node.label for node in origin),
                source_ops=tuple(node.op for node in origin),
            )
        )
    return tuple(found)


def by_op(nodes: Iterable[NodeTime]) -> tuple[Group, ...]:
    """Group nodes by operator."""
    return _group((node.op, node) for node in nodes)


def by_source(nodes: Iterable[NodeTime]) -> tuple[Group, ...]:
    """Group nodes by the ONNX nodes that they compute."""

    def name(sources: Sequence[str]) -> str:
        if len(sources) > _LISTED:
            return f"{sources[0]} + … + {sources[-1]} ({len(sources)} nodes)"
        return " + ".join(sources) or UNKNOWN

    return _group((name(node.sources), node) for node in nodes)


def _group(named: Iterable[tuple[str, NodeTime]]) -> tuple[Group, ...]:
    members: dict[str, list[NodeTime]] = {}
    for name, node in named:
        members.setdefault(name, []).append(node)
    groups = []
    for name, nodes in members.items():
        ms, share = sum(node.ms for node in nodes), sum(node.share for node in nodes)
        groups.append(Group(name=name, count=len(nodes), ms=ms, share=share))
    return tuple(sorted(groups, key=lambda group: -group.ms))
