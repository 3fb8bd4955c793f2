"""How LiteRT divides a graph between a delegate and its own kernels.

As PartitionGraphIntoIndependentNodeSubsets of tflite/graph_info.cc: a subset takes all ready nodes of one kind, in the
order of the file, before the other kind has its turn. Nodes with side effects keep their order.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise

from onnxport.formats.graph import Node, OperatorGraph

_SIDE_EFFECTS = ("IF", "WHILE", "CALL_ONCE")


@dataclass(frozen=True)
class Subset:
    """Nodes that run one after the other, all by the delegate or none."""

    delegated: bool
    nodes: tuple[Node, ...]


def divide(graph: OperatorGraph, taken: Collection[Node]) -> list[Subset]:
    """Return the subsets of one graph in the order in which they run, if the delegate takes the nodes `taken`."""
    made = {tensor: node for node in graph.nodes for tensor in node.outputs}
    needs = {node: {made[each] for each in node.reads() if each in made} for node in graph.nodes}
    chain = [node for node in graph.nodes if _has_side_effects(node)]
    for before, node in pairwise(chain):
        needs[node].add(before)
    pending = list(graph.nodes)
    done: set[Node] = set()
    found: list[Subset] = []
    while pending:
        # Without a ready node the file is damaged: its nodes need each other.
        first = next((node for node in pending if needs[node] <= done), pending[0])
        needs[first] -= needs[first] - done
        nodes: list[Node] = []
        count = -1
        while len(nodes) > count:
            count, waiting = len(nodes), []
            for node in pending:
                if (node in taken) is (first in taken) and needs[node] <= done:
                    nodes.append(node)
                    done.add(node)
                else:
                    waiting.append(node)
            pending = waiting
        found.append(Subset(first in taken, tuple(nodes)))
    return found


def _has_side_effects(node: Node) -> bool:
    tensors = (*node.inputs, *node.outputs)
    return node.op in _SIDE_EFFECTS or any(each is not None and each.dtype == "resource" for each in tensors)
