"""What a runtime that is not installed would take of a model, by its data file."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from onnxport.deployment.estimation.graph import is_folded
from onnxport.deployment.estimation.support import Reason, find_refusal
from onnxport.deployment.estimation.table import Table
from onnxport.deployment.report import Extent, Fallback, Placement
from onnxport.formats.graph import Node, OperatorGraph

__all__ = ["Estimate", "estimate"]


@dataclass(frozen=True)
class Estimate:
    """A placement, and the remedies for its refusals (`Reason.remedies`), the most frequent first."""

    placement: Placement
    remedies: tuple[str, ...] = ()


def estimate(graph: OperatorGraph, table: Table) -> Estimate:
    """Check every node of `graph` against `table`."""
    if graph.opset not in table.opset:
        return _refuse_opset(graph, table)
    refused: dict[Node, Reason] = {}
    for each in graph.graphs():
        for node in each.nodes:
            if reason := _find_refusal(each is not graph, node, table, refused):
                refused[node] = reason
    found = [
        group for each in graph.graphs() for group in group_nodes(each, set(each.nodes) - refused.keys())
    ]
    for group in found:
        if len(group) < table.smallest:
            why = f"a group of {len(group)} taken nodes, at least {table.smallest}"
            refused |= dict.fromkeys(group, Reason(why))
    count = sum(1 for _ in graph.all_nodes())
    placement = table.placement().model_copy(
        update={
            "extent": _extent(count, len(refused), table),
            "nodes": count,
            "taken": count - len(refused),
            "partitions": sum(len(group) >= table.smallest for group in found) if table.fallback else None,
            "fallbacks": tuple(
                Fallback(op=node.qualified, node=node.label, why=reason.why)
                for node, reason in ((node, refused.get(node)) for node in graph.all_nodes())
                if reason is not None
            ),
        }
    )
    return Estimate(placement, _by_frequency(refused.values()))


def _find_refusal(in_body: bool, node: Node, table: Table, refused: dict[Node, Reason]) -> Reason | None:
    if in_body and not table.bodies:
        return Reason("it is inside If, Loop or Scan", remedies=("optimize",))
    if table.folds and is_folded(node):
        return None
    return find_refusal(node, table, refused)


def _extent(nodes: int, refused: int, table: Table) -> Extent:
    if not refused:
        return "all"
    return "part" if table.fallback and refused < nodes else "none"


def _refuse_opset(graph: OperatorGraph, table: Table) -> Estimate:
    nearest = table.opset.most if graph.opset > (table.opset.most or 0) else table.opset.least
    placement = table.placement().model_copy(
        update={"nodes": sum(1 for _ in graph.all_nodes()), "why": f"opset {graph.opset}, {table.opset}"}
    )
    return Estimate(placement, (f"opset {nearest}",))


def _by_frequency(reasons: Iterable[Reason]) -> tuple[str, ...]:
    counts: dict[str, int] = {}
    for reason in reasons:
        for remedy in reason.remedies:
            counts[remedy] = counts.get(remedy, 0) + 1
    return tuple(sorted(counts, key=lambda remedy: -counts[remedy]))


def group_nodes(graph: OperatorGraph, taken: Collection[Node]) -> list[list[Node]]:
    """Return the groups of `taken` nodes of one graph, each in the order of the graph."""
    waits = {node: len(node.producers) for node in graph.nodes}
    ready = deque(node for node in graph.nodes if not waits[node])
    postponed: deque[Node] = deque()
    found: list[list[Node]] = []
    group: list[Node] = []
    border: set[Node] = set()  # nodes that read from the group
    while ready or postponed:
        if not ready:
            found.append(group)
            ready, postponed, group, border = postponed, deque(), [], set()
            continue
        node = ready.popleft()
        if node in taken:
            group.append(node)
            border.update(node.consumers)
        elif node in border:
            postponed.append(node)
            continue
        for consumer in node.consumers:
            waits[consumer] -= 1
            if not waits[consumer]:
                ready.append(consumer)
    found.append(group)
    return [each for each in found if each]
