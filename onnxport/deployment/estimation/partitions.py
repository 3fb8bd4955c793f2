"""Groups of taken nodes, as an execution provider forms them.

A group runs as one, so no path may leave it and return. In topological order, a group takes each taken node that is
ready, and ends when all others wait for a node of the fallback that waits for the group. ONNX Runtime does this for
providers that compile (onnxruntime/core/providers/partitioning_utils.cc).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from onnxport.formats.graph import Node, OperatorGraph


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
