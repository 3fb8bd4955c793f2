"""Sequences and optionals of known content, replaced by the tensors in them.

torch writes x.split(n)[i] as SplitToSequence and SequenceAt, and joins lists by ConcatFromSequence. With known
positions and lengths no target needs lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.formats.model import Model, dims_of
from onnxport.optimizers.branches import inline_body

# Longer sequences would make the graph too large.
_MOST_ELEMENTS = 256


def resolve_sequences(model: Model) -> int:
    """Replace reads from sequences and optionals of known content; return how many."""
    resolver = _Resolver(model)
    resolver.walk(model.graph)
    if resolver.replaced:
        common.RemoveUnusedNodesPass()(model.ir)
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model.ir)
    return resolver.replaced


class _Resolver:
    """A walk over a graph and its subgraphs in topological order, with the known content of sequences and optionals."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.elements: dict[ir.Value, list[ir.Value]] = {}
        self.contents: dict[ir.Value, ir.Value | None] = {}
        self.replaced = 0

    def walk(self, graph: ir.Graph) -> None:
        for node in list(graph):
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.GRAPH and node.op_type != "SequenceMap":
                    self.walk(attribute.as_graph())
            rule = _RULES.get(node.op_type) if node.domain in ("", "ai.onnx") else None
            if rule is not None:
                rule(self, node)

    def elements_of(self, value: ir.Value | None) -> list[ir.Value] | None:
        return None if value is None else self.elements.get(value)

    def set_elements(self, node: ir.Node, elements: Sequence[ir.Value]) -> None:
        if len(elements) <= _MOST_ELEMENTS:
            self.elements[node.outputs[0]] = list(elements)

    def replace(self, node: ir.Node, value: ir.Value) -> None:
        """Make `value` the node's result, under the old name, which may be a graph output's."""
        old = node.outputs[0]
        copy = insert_node(node, "Identity", [value])[0]
        copy.type, copy.shape = old.type or value.type, old.shape or value.shape
        name, old.name = old.name, None
        copy.name = name
        old.replace_all_uses_with(copy, replace_graph_outputs=True)
        self.replaced += 1


def insert_node(
    before: ir.Node, op: str, operands: Sequence[ir.Value | None], outputs: int = 1, **attributes: Any
) -> Sequence[ir.Value]:
    """Insert a node in front of `before` and return its results."""
    node = ir.node(op, operands, attributes, num_outputs=outputs)
    assert before.graph is not None
    before.graph.insert_before(before, node)
    return node.outputs


def insert_constant(before: ir.Node, array: np.ndarray | int) -> ir.Value:
    return insert_node(before, "Constant", [], value=ir.tensor(np.asarray(array, np.int64)))[0]


def _position(node: ir.Node, index: int) -> int | None:
    """Return a constant position; None for a computed one."""
    value = _input(node, index)
    return None if value is None or value.const_value is None else int(value.const_value.numpy().item())


def _input(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


# ---- operators that build sequences


def _construct(resolver: _Resolver, node: ir.Node) -> None:
    resolver.set_elements(node, [value for value in node.inputs if value is not None])


def _insert(resolver: _Resolver, node: ir.Node) -> None:
    elements, tensor = resolver.elements_of(node.inputs[0]), node.inputs[1]
    position = _position(node, 2) if _input(node, 2) is not None else len(elements or ())
    if (
        elements is None
        or tensor is None
        or position is None
        or not -len(elements) <= position <= len(elements)
    ):
        return
    position += len(elements) * (position < 0)
    resolver.set_elements(node, [*elements[:position], tensor, *elements[position:]])


def _erase(resolver: _Resolver, node: ir.Node) -> None:
    elements = resolver.elements_of(node.inputs[0])
    position = _position(node, 1) if _input(node, 1) is not None else -1
    if elements is not None and position is not None and -len(elements) <= position < len(elements):
        position %= len(elements)
        resolver.set_elements(node, [*elements[:position], *elements[position + 1 :]])


def _identity(resolver: _Resolver, node: ir.Node) -> None:
    source, result = node.inputs[0], node.outputs[0]
    if source in resolver.elements:
        resolver.elements[result] = resolver.elements[source]
    elif source in resolver.contents:
        resolver.contents[result] = resolver.contents[source]


def _split(resolver: _Resolver, node: ir.Node) -> None:
    x, given = node.inputs[0], _input(node, 1)
    if x is None or x.shape is None:
        return
    axis = node.attributes.get_int("axis", 0) % max(len(x.shape), 1)
    if given is None or given.const_value is not None:
        known = _part_sizes(dims_of(x)[axis], given)
        if not known or len(known) > _MOST_ELEMENTS:
            return
        count, sizes = len(known), insert_constant(node, np.array(known))
    else:
        # Sizes computed at run time: how many there are is all that has to be known.
        (length, *_) = dims_of(given) if given.shape is not None and len(given.shape) == 1 else (None,)
        if not isinstance(length, int) or not 0 < length <= _MOST_ELEMENTS:
            return
        count, sizes = length, insert_node(node, "Cast", [given], to=ir.DataType.INT64.value)[0]
    parts = insert_node(node, "Split", [x, sizes], count, axis=axis)
    if given is None and not node.attributes.get_int("keepdims", 1):
        axes = insert_constant(node, np.array([axis]))
        parts = [insert_node(node, "Squeeze", [part, axes])[0] for part in parts]
    resolver.set_elements(node, parts)


def _part_sizes(length: int | str | None, given: ir.Value | None) -> list[int] | None:
    sizes = None if given is None or given.const_value is None else given.const_value.numpy()
    if sizes is not None and sizes.ndim:
        return [int(size) for size in sizes]
    if not isinstance(length, int):
        return None
    step = 1 if sizes is None else int(sizes.item())
    return [min(step, length - start) for start in range(0, length, step)] if step > 0 else None


def _map(resolver: _Resolver, node: ir.Node) -> None:
    """Write the body out for every element; operands that are no sequences are the same for all."""
    sequences = [resolver.elements_of(value) for value in node.inputs]
    lengths = {len(each) for each in sequences if each is not None}
    if sequences[0] is None or len(lengths) != 1:
        return
    if any(e is None and not _is_tensor(v) for e, v in zip(sequences, node.inputs, strict=True)):
        return
    (length,) = lengths
    rows: list[list[ir.Value]] = []
    for number in range(length):
        body = node.attributes["body"].as_graph().clone(allow_outer_scope_values=True)
        for inner in body.all_nodes():
            inner.name = f"{node.name or node.outputs[0].name}.{number}/{inner.name or inner.op_type}"
        operands = [v if e is None else e[number] for e, v in zip(sequences, node.inputs, strict=True)]
        rows.append(inline_body(resolver.model, node, body, operands))
    for index, result in enumerate(node.outputs):
        resolver.elements[result] = [row[index] for row in rows]


# ---- operators that read them


def _at(resolver: _Resolver, node: ir.Node) -> None:
    elements, position = resolver.elements_of(node.inputs[0]), _position(node, 1)
    if elements is not None and position is not None and -len(elements) <= position < len(elements):
        resolver.replace(node, elements[position])


def _length(resolver: _Resolver, node: ir.Node) -> None:
    elements = resolver.elements_of(node.inputs[0])
    if elements is not None:
        resolver.replace(node, insert_constant(node, len(elements)))


def _concat(resolver: _Resolver, node: ir.Node) -> None:
    elements, axis = resolver.elements_of(node.inputs[0]), node.attributes.get_int("axis", 0)
    if not elements:
        _join_parts(resolver, node, axis)
        return
    if node.attributes.get_int("new_axis", 0):
        axes = insert_constant(node, np.array([axis]))
        elements = [insert_node(node, "Unsqueeze", [element, axes])[0] for element in elements]
    resolver.replace(node, insert_node(node, "Concat", elements, axis=axis)[0])


def _join_parts(resolver: _Resolver, node: ir.Node, axis: int) -> None:
    """Replace a split that is joined again, of however many parts: the tensor itself, or its axis moved.

    torch writes a list comprehension over a tensor's first axis so, as in `torch.stack([row for row in x], 1)`.
    """
    split = None if node.inputs[0] is None else node.inputs[0].producer()
    x = None if split is None or split.op_type != "SplitToSequence" else split.inputs[0]
    if split is None or x is None or x.shape is None or not len(x.shape):
        return
    rank, source = len(x.shape), split.attributes.get_int("axis", 0) % len(x.shape)
    drops_axis = _input(split, 1) is None and not split.attributes.get_int("keepdims", 1)
    adds_axis = bool(node.attributes.get_int("new_axis", 0))
    if drops_axis != adds_axis or (not adds_axis and axis % rank != source):
        return
    order = [each for each in range(rank) if each != source]
    order.insert(axis % rank, source)
    moved = x if order == sorted(order) else insert_node(node, "Transpose", [x], perm=order)[0]
    resolver.replace(node, moved)


# ---- optionals


def _is_tensor(value: ir.Value | None) -> bool:
    return value is not None and isinstance(value.type, ir.TensorType)


def _optional(resolver: _Resolver, node: ir.Node) -> None:
    resolver.contents[node.outputs[0]] = _input(node, 0)


def _has_element(resolver: _Resolver, node: ir.Node) -> None:
    source = _input(node, 0)
    if source in resolver.contents:
        has = resolver.contents[source] is not None
    elif source is None or isinstance(source.type, ir.TensorType | ir.SequenceType):
        has = source is not None
    else:
        return
    resolver.replace(node, insert_node(node, "Constant", [], value=ir.tensor(np.array(has)))[0])


def _get_element(resolver: _Resolver, node: ir.Node) -> None:
    source = node.inputs[0]
    content = resolver.contents.get(source, source) if source is not None else None
    if content in resolver.elements:
        resolver.elements[node.outputs[0]] = resolver.elements[content]
    elif content is not None and _is_tensor(content):
        resolver.replace(node, content)


_RULES: dict[str, Callable[[_Resolver, ir.Node], None]] = {
    "ConcatFromSequence": _concat,
    "Identity": _identity,
    "Optional": _optional,
    "OptionalGetElement": _get_element,
    "OptionalHasElement": _has_element,
    "SequenceAt": _at,
    "SequenceConstruct": _construct,
    "SequenceEmpty": _construct,
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _length,
    "SequenceMap": _map,
    "SplitToSequence": _split,
}
