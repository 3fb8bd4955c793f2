"""Groups of taken nodes, as an execution provider makes them.

A group runs as one, so no path may lead out of it and back in: what is computed in between would have to wait for the
group, and the group for it. The nodes are gone through in an order in which they could run; a group takes what is ready
and taken, and ends where only nodes are left that wait for one of the fallback's which in turn waits for the group.
This is what ONNX Runtime does for providers that compile (onnxruntime/core/providers/partitioning_utils.cc), and how
often control goes to the provider and back for others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from onnxport.formats.graph import Node, OperatorGraph


def groups(graph: OperatorGraph, taken: Collection[Node]) -> list[list[Node]]:
    """The groups of `taken` nodes of one graph, each in the order of the graph."""
    waits = {node: len(node.producers) for node in graph.nodes}
    ready = deque(node for node in graph.nodes if not waits[node])
    postponed: deque[Node] = deque()
    found: list[list[Node]] = []
    group: list[Node] = []
    border: set[Node] = set()  # that read from the group
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
