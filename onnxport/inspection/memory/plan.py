"""Plan a graph: buffers with offsets, the peak and where it is, and the work of each node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from onnxport.formats.graph import Node, OperatorGraph, Tensor
from onnxport.inspection.memory.arena import place
from onnxport.inspection.memory.buffers import Buffer, Rules, buffers_of, bytes_of, unsized
from onnxport.inspection.memory.operations import macs_of
from onnxport.inspection.memory.report import BufferPlan, MemoryPlan, NodePlan

_ALTERNATIVES = ("If", "IF")  # operators that run one of their graphs


def plan_graph(graph: OperatorGraph, rules: Rules, runtime: str) -> MemoryPlan:
    """Return the plan of `graph`; the graphs inside a node count as memory that it takes while it runs."""
    end = max(len(graph.nodes) - 1, 0)
    # An inner graph's inputs are values of the graph around it.
    inner = [
        [plan_graph(body, rules._replace(holds_inputs=False), runtime) for body in node.bodies.values()]
        for node in graph.nodes
    ]
    buffers = buffers_of(graph, rules)
    arena = place(buffers, end)
    live = _live(buffers, len(graph.nodes))
    for number, plans in enumerate(inner):
        live[number] += _together(graph.nodes[number], [each.peak for each in plans])
    scratch = max((_together(node, [each.arena for each in plans])
                   for node, plans in zip(graph.nodes, inner, strict=True)), default=0)  # fmt: skip
    nodes = tuple(
        _node(node, plans, int(bytes_)) for node, plans, bytes_ in zip(graph.nodes, inner, live, strict=True)
    )
    peak = int(live.max(initial=0))
    return MemoryPlan(
        runtime=runtime,
        inputs=_total(graph.inputs),
        outputs=_total(graph.outputs),
        holds_inputs=rules.holds_inputs,
        weights=sum(_total(each.constants) for each in graph.graphs()),
        macs=sum(node.macs for node in nodes),
        peak=peak,
        peak_node=nodes[int(live.argmax())].name if nodes else "",
        arena=arena + scratch,
        unsized=(*unsized(graph), *(name for plans in inner for each in plans for name in each.unsized)),
        nodes=nodes,
        buffers=tuple(
            BufferPlan(
                names=tuple(tensor.name for tensor in each.tensors),
                offset=each.offset,
                size=each.size,
                first=each.first,
                last=each.last,
            )
            for each in buffers
        ),
    )


def _live(buffers: Sequence[Buffer], nodes: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the bytes that hold values, int64[nodes]."""
    change = np.zeros(nodes + 1, np.int64)
    for each in buffers:
        change[each.first] += each.size
        change[each.last + 1] -= each.size
    return np.cumsum(change[:nodes])


def _together(node: Node, figures: Sequence[int]) -> int:
    return max(figures, default=0) if node.op in _ALTERNATIVES else sum(figures)


def _node(node: Node, inner: Sequence[MemoryPlan], live: int) -> NodePlan:
    read = dict.fromkeys(node.reads())
    return NodePlan(
        name=node.label,
        operator=node.qualified,
        macs=macs_of(node) + _together(node, [each.macs for each in inner]),
        read=_total(each for each in read if not each.is_constant),
        weights=_total(each for each in read if each.is_constant),
        written=_total(each for each in node.outputs if each is not None),
        live=live,
    )


def _total(tensors: Iterable[Tensor]) -> int:
    return sum(bytes_of(each) or 0 for each in tensors)
