"""The smallest cut that leaves refused nodes at the beginning and the end of a model outside."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import onnx_ir as ir

from onnxport.core.errors import Refusal
from onnxport.optimizers.dataflow import Dataflow
from onnxport.optimizers.extraction import Cut

# A part is worth converting if it has more than this share of the nodes, or of the weights' bytes.
_SHARE = 0.5
# More values at an end are no cut that an app could continue from.
_MOST_VALUES = 16
# A model with more refused nodes is not one whose ends alone are refused; each of them costs a walk.
_MOST_NODES = 200


def find_refused_nodes(flow: Dataflow, refusals: Iterable[Refusal]) -> set[ir.Node] | None:
    """Return the nodes of the main graph that refusals are about; None if one of them is not found.

    A refusal names a node of the prepared graph: one of the file, or one that a rewriting made and named after the
    value that it computes ("value/Op"). An input stands for the nodes that read it.
    """
    holders = {name: node for node in flow.graph for name in _names(node)}
    found = set[ir.Node]()
    for refusal in refusals:
        if refusal.op == "input":
            value = flow.values.get(refusal.node)
            nodes = {node for node in flow.graph if value is not None and value in flow.reads(node)}
        else:
            name = refusal.node
            while name not in holders and "/" in name:
                name = name.rpartition("/")[0]
            nodes = {holders[name]} if name in holders else set()
        if not nodes:
            return None
        found |= nodes
    return found


def _names(node: ir.Node) -> Iterator[str]:
    """Yield the names by which a refusal may mean a node: its own, its results', those of the nodes in its graphs."""
    yield from filter(None, (node.name, *(value.name for value in node.outputs)))
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
            for inner in attribute.as_graph():
                yield from _names(inner)


def smallest_cut(flow: Dataflow, refused: Collection[ir.Node]) -> Cut | None:
    """Return the cut whose part has the most nodes and none of `refused`; None if too little is left.

    Each refused node goes with the nodes in front of it or with those behind it, whichever are fewer.
    """
    if len(refused) > _MOST_NODES:
        return None
    front = {node: flow.ancestors(node.outputs) for node in refused}
    behind = {node: flow.descendants([node]) for node in refused}
    begins = {node for node in refused if len(front[node]) <= len(behind[node])}
    plans = (begins, set(refused), set[ir.Node]())
    parts = [_part(flow, *_sides(refused, plan, front, behind)) for plan in plans]
    part = max(parts, key=len)
    if max(_weight(flow, part), len(part) / len(flow.graph)) <= _SHARE:
        return None
    return _cut(flow, part)


def _sides(
    refused: Collection[ir.Node],
    begins: Collection[ir.Node],
    front: dict[ir.Node, set[ir.Node]],
    behind: dict[ir.Node, set[ir.Node]],
) -> tuple[set[ir.Node], set[ir.Node]]:
    head = set[ir.Node]().union(*(front[node] for node in begins))
    tail = set[ir.Node]().union(*(behind[node] for node in refused if node not in begins))
    return head, tail


def _part(flow: Dataflow, head: Collection[ir.Node], tail: Collection[ir.Node]) -> set[ir.Node]:
    return {
        node
        for node in flow.graph
        if node not in head and node not in tail and any(value in flow.varying for value in node.outputs)
    }


def _weight(flow: Dataflow, part: Collection[ir.Node]) -> float:
    """Return the share of the weights' bytes that nodes of the part read."""
    sizes = {
        value: value.const_value.nbytes
        for value in flow.graph.initializers.values()
        if value.const_value is not None and value.const_value.dtype != ir.DataType.STRING
    }
    read = {value for node in part for value in flow.reads(node)}
    return sum(size for value, size in sizes.items() if value in read) / max(sum(sizes.values()), 1)


def _cut(flow: Dataflow, part: Collection[ir.Node]) -> Cut | None:
    """Return the values that go into the part and come out of it."""
    handed = {value for node in flow.graph if node not in part for value in flow.reads(node)}
    handed |= set(flow.graph.outputs)
    outputs = [value for node in flow.graph if node in part for value in node.outputs if value in handed]
    needed = flow.ancestors(outputs)
    read = {value for node in part if node in needed for value in flow.reads(node)} & flow.varying
    inputs = [value for value in flow.values.values() if value in read and value.producer() not in part]
    if not inputs or not outputs or max(len(inputs), len(outputs)) > _MOST_VALUES:
        return None
    # The model's own outputs keep their order.
    ports = [value for value in flow.graph.outputs if value in outputs]
    ordered = [*ports, *(value for value in outputs if value not in ports)]
    return Cut(tuple(value.name or "" for value in inputs), tuple(value.name or "" for value in ordered))
