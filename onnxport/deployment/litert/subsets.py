"""How TFLite divides a graph between a delegate and its own kernels (PartitionGraphIntoIndependentNodeSubsets of
tflite/graph_info.cc): the nodes are gone through again and again, and a subset takes all of one kind that are ready, in
whatever order, before the other kind has its turn. Nodes with side effects keep their order.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from onnxport.formats.graph import Node, OperatorGraph

_SIDE_EFFECTS = ("IF", "WHILE", "CALL_ONCE")


@dataclass(frozen=True)
class Subset:
    """Nodes that run one after the other, all by the delegate or none."""

    delegated: bool
    nodes: tuple[Node, ...]


def subsets(graph: OperatorGraph, taken: Collection[Node]) -> list[Subset]:
    """The subsets of one graph in the order in which they run, where the delegate takes the nodes `taken`."""
    waiting = list(graph.nodes)
    before = _chained(waiting)
    done: set[Node] = set()
    found: list[Subset] = []
    while waiting:
        kind: bool | None = None
        nodes: list[Node] = []
        moved = True
        while moved:
            moved, left = False, []
            for node in waiting:
                is_ready = all(each in done for each in node.producers) and (
                    before.get(node) is None or before[node] in done
                )
                if is_ready and kind in (None, node in taken):
                    kind = node in taken
                    nodes.append(node)
                    done.add(node)
                    moved = True
                else:
                    left.append(node)
            waiting = left
        assert kind is not None, "the file's operators stand in an order in which they can run"
        found.append(Subset(kind, tuple(nodes)))
    return found


def _chained(nodes: list[Node]) -> dict[Node, Node]:
    """Each node with side effects to the one before it."""
    chain = [node for node in nodes if node.op in _SIDE_EFFECTS or _has_resource(node)]
    return dict(zip(chain[1:], chain, strict=False))


def _has_resource(node: Node) -> bool:
    return any(tensor is not None and tensor.dtype == "resource" for tensor in (*node.inputs, *node.outputs))
