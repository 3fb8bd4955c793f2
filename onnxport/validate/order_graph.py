"""Find the TopKs whose order decides an output, and cut out what they decide, with their places as inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.formats.model import Model
from onnxport.samples.value_uses import constant
from onnxport.validate.decision_graph import is_rounded, replace_value

# GatherElements, which takes the scores at given places.
_LEAST_OPSET = 11
_MOST = 3  # TopKs behind one output


@dataclass(frozen=True)
class Order:
    """A TopK over the last axis that selects from rounded floats.

    Attributes:
        node: its index in the graph.
        scores: what it orders.
        count: how many it keeps, a constant, or the name of a value.
        is_descending: whether the largest come first.
        is_behind: whether another TopK decides its scores.
    """

    node: int
    scores: ir.Value
    count: int | str
    is_descending: bool
    is_behind: bool


@dataclass(frozen=True)
class Decided:
    """A model of what TopKs decide.

    Attributes:
        model: from the values below, and the TopKs' places by `order_name`, to one output.
        given: the values of the whole model that it reads.
    """

    model: Model
    given: tuple[str, ...]


def order_name(number: int) -> str:
    """Return the name of the input that takes the place of a TopK's indices."""
    return f"onnxport.order.{number}"


def find_orders(model: Model) -> dict[str, tuple[Order, ...]]:
    """Map the outputs behind TopKs of rounded floats to these, in the order in which they run.

    Args:
        model: without functions.
    """
    if model.opset < _LEAST_OPSET:
        return {}
    places = {id(node): index for index, node in enumerate(model.graph)}
    found = {}
    for output in model.graph.outputs:
        nodes = sorted(
            (node for node in _nodes_behind([output]) if _is_top_k(node) and is_rounded(node.inputs[0])),
            key=lambda node: places[id(node)],
        )
        orders = [order for node in nodes if (order := _order(node, places[id(node)])) is not None]
        if output.name and 0 < len(orders) == len(nodes) <= _MOST:
            found[output.name] = tuple(orders)
    return found


def cut_decided(model: Model, orders: Sequence[Order], output: str) -> Decided | None:
    """Return what TopKs decide of a value; None where it cannot be cut out.

    Args:
        output: the value's name.
    """
    copy = model.clone()
    nodes = list(copy.graph)
    for number, order in enumerate(orders):
        _replace_order(copy.graph, nodes[order.node], order_name(number))
    values = {value.name: value for node in copy.graph for value in node.outputs}
    wanted = values.get(output)
    if wanted is None:
        return None
    decided = _nodes_after(copy.graph, {order_name(number) for number in range(len(orders))})
    needed = [node for node in _nodes_behind([wanted]) if id(node) in decided]
    if not needed or any(
        isinstance(attribute, ir.Attr) and attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
        for node in needed
        for attribute in node.attributes.values()
    ):
        return None
    read = {id(value): value for node in needed for value in node.inputs if value is not None}
    borders = [value for value in read.values() if _is_border(value, decided)]
    if any(value.dtype is None or not value.name for value in borders):
        return None
    inputs = [value for value in copy.graph.inputs if id(value) in read and _is_place(value)]
    for value in borders:
        given = ir.val(value.name or "", dtype=value.dtype, shape=value.shape)
        value.name = f"{value.name}/whole"
        value.replace_all_uses_with(given)
        inputs.append(given)
    copy.graph.inputs[:] = inputs
    copy.graph.outputs[:] = [wanted]
    common.RemoveUnusedNodesPass()(copy.ir)
    return Decided(copy, tuple(value.name or "" for value in inputs if not _is_place(value)))


def _replace_order(graph: ir.Graph, node: ir.Node, name: str) -> None:
    """Let the readers of a TopK read the places given as an input, and the scores there."""
    shape = node.outputs[0].shape or node.outputs[1].shape
    places = ir.val(name, dtype=ir.DataType.INT64, shape=shape)
    graph.inputs.append(places)
    indices = ir.node("Identity", [places])
    scores = ir.node("GatherElements", [node.inputs[0], places], {"axis": -1})
    for own, replacement in zip((scores, indices), node.outputs, strict=True):
        own.name = own.outputs[0].name = f"{name}/{own.op_type}"
        own.outputs[0].type, own.outputs[0].shape = replacement.type, replacement.shape
    indices.outputs[0].type = ir.TensorType(ir.DataType.INT64)
    graph.insert_after(node, [scores, indices])
    for own, replacement in zip((scores, indices), tuple(node.outputs), strict=True):
        name_of = replacement.name
        replace_value(replacement, own.outputs[0])
        if replacement.name == name_of and name_of:
            # The value can be asked for by its name, too.
            replacement.name, own.outputs[0].name = f"{name_of}/ordered", name_of


def _order(node: ir.Node, place: int) -> Order | None:
    """Return the order of a TopK; None where it is not along the last axis, or its places are unknown."""
    scores, count = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    if scores is None or scores.shape is None or count is None or not count.name:
        return None
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else -1
    if axis not in (-1, len(scores.shape) - 1):
        return None
    descending = "largest" not in node.attributes or bool(node.attributes["largest"].as_int())
    known = constant(count)
    keeps = count.name if known is None else int(known.ravel()[0])
    return Order(place, scores, keeps, descending, any(map(_is_top_k, _nodes_behind([scores]))))


def _is_top_k(node: ir.Node) -> bool:
    return node.op_type == "TopK" and node.domain in ("", "ai.onnx")


def _nodes_behind(values: Iterable[ir.Value]) -> Iterator[ir.Node]:
    """Yield the nodes of the main graph that compute values, each once."""
    pending, seen = list(values), set[int]()
    while pending:
        node = pending.pop().producer()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        pending += [value for value in node.inputs if value is not None]


def _nodes_after(graph: ir.Graph, names: set[str]) -> set[int]:
    """Return the nodes, by `id`, that read one of the named inputs, or the results of such nodes."""
    pending = [value for value in graph.inputs if value.name in names]
    found = set[int]()
    while pending:
        for node, _ in pending.pop().uses():
            if id(node) not in found:
                found.add(id(node))
                pending += node.outputs
    return found


def _is_border(value: ir.Value, decided: set[int]) -> bool:
    """Return whether the whole model computes a value that does not hang on the orders."""
    node = value.producer()
    if node is None:
        return not value.is_initializer() and not _is_place(value)
    return id(node) not in decided and constant(value) is None


def _is_place(value: ir.Value) -> bool:
    return (value.name or "").startswith("onnxport.order.") and "/" not in (value.name or "")
