"""The order in which ONNX Runtime runs the nodes of a graph; LiteRT takes that of the file."""

from __future__ import annotations

from onnxport.formats.graph import Node, OperatorGraph


def in_execution_order(graph: OperatorGraph) -> None:
    """Sort the nodes as ONNX Runtime does, those of inner graphs too; Constant nodes are left out.

    The results of a depth-first search from the nodes that nothing reads, the last first, and on from each node to
    the last of its producers first (Graph::ReverseDFSFrom of core/graph/graph.cc).
    """
    for each in graph.graphs():
        each.nodes = [node for node in each.nodes if node.op != "Constant"]
    graph.link()
    for each in graph.graphs():
        each.nodes = _sorted(each.nodes)


def _sorted(nodes: list[Node]) -> list[Node]:
    places = {node: place for place, node in enumerate(nodes)}
    to_visit = [(node, False) for node in nodes if not node.consumers]
    seen, order = set[Node](), list[Node]()
    while to_visit:
        node, is_done = to_visit.pop()
        if is_done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            to_visit.append((node, True))
            ahead = (each for each in node.producers if each not in seen)
            to_visit += [(each, False) for each in sorted(ahead, key=places.__getitem__)]
    return order
