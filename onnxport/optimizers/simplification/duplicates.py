"""One of several equal things: constants with the same elements, nodes with the same operator and operands."""

from __future__ import annotations

import hashlib
from typing import Any

import onnx_ir as ir

from onnxport.optimizers.patterns import LARGE
from onnxport.optimizers.simplification.graph import PLAIN_ATTRIBUTES, ModelEditor, simplification

# Larger weights are not compared: reading them costs more than a second copy, which no exporter writes.
_COMPARED = 16 * 2**20  # bytes
# Each graph keeps smaller ones of its own: shape inference reads no others there.
_SMALL = 1024  # bytes
# Random operators, and those of which integer kernels need one per reader.
_KEPT = frozenset(
    (
        "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike "
        "QuantizeLinear DequantizeLinear"
    ).split()
)


@simplification("share-subexpressions")
def share_subexpressions(editor: ModelEditor) -> int:
    """Keep one of several nodes with the same operator, operands and attributes.

    Keeps: Random numbers, nodes with branches or bodies, nodes of two graph outputs, and Q and DQ, of which
    integer kernels need one per reader.
    """
    return sum(_share_nodes(graph) for graph in editor.graphs())


def _share_nodes(graph: ir.Graph) -> int:
    alike: dict[Any, list[ir.Node]] = {}
    shared = 0
    for node in list(graph):
        if node.op_type in _KEPT:
            continue
        others = alike.setdefault((node.domain, node.op_type, tuple(map(id, node.inputs))), [])
        other = next((each for each in others if _same_attributes(each, node)), None)
        if other is None:
            others.append(node)
            continue
        pairs = list(zip(node.outputs, other.outputs, strict=True))
        # The other one may lack an optional result.
        if all((theirs.name or not mine.uses()) and not mine.is_graph_output() for mine, theirs in pairs):
            for mine, theirs in pairs:
                mine.replace_all_uses_with(theirs)
            graph.remove(node, safe=True)
            shared += 1
    return shared


def _same_attributes(a: ir.Node, b: ir.Node) -> bool:
    def is_same(one: ir.Attr, two: ir.Attr) -> bool:
        if one.type != two.type or one.is_ref() or two.is_ref():
            return False
        if one.type == ir.AttributeType.TENSOR:
            x, y = one.as_tensor(), two.as_tensor()
            return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
        return one.type in PLAIN_ATTRIBUTES and bool(one.value == two.value)

    same = len(a.outputs) == len(b.outputs) and a.attributes.keys() == b.attributes.keys()
    return same and all(is_same(a.attributes[name], b.attributes[name]) for name in a.attributes)


@simplification("share-constants")
def share_constants(editor: ModelEditor) -> int:
    """Keep one of several constants with the same elements, also across branches and loop bodies.

    Keeps: Constants above 16 MiB, and strings.
    """
    shared = _share_among_graphs(editor)
    return shared + sum(_share_within(graph) for graph in editor.graphs())


def _share_among_graphs(editor: ModelEditor) -> int:
    """Move large constants that several graphs hold to the main graph, which all of them see."""
    main = editor.model.graph
    alike: dict[Any, list[tuple[ir.Graph, ir.Value]]] = {}
    for graph in editor.graphs():
        for value in graph.initializers.values():
            large = value.const_value is not None and value.const_value.nbytes > _SMALL
            if large and not value.is_graph_output() and (key := _identity(value)) is not None:
                alike.setdefault(key, []).append((graph, value))
    shared = 0
    for found in alike.values():
        if len(found) > 1 and any(graph is not main for graph, _ in found):
            first = next((value for graph, value in found if graph is main), None)
            for graph, value in found:
                if graph is not main:
                    del graph.initializers[value.name or ""]
                    if first is None:
                        first = editor.move_constant(value, main)
                    else:
                        value.replace_all_uses_with(first)
                    shared += 1
    return shared


def _share_within(graph: ir.Graph) -> int:
    first: dict[Any, ir.Value] = {}
    shared = 0
    for value in list(graph.initializers.values()):
        key = _identity(value)
        if key is None or value.is_graph_output() or value.is_graph_input():
            continue
        other = first.setdefault(key, value)
        if other is not value:
            value.replace_all_uses_with(other)
            del graph.initializers[value.name or ""]
            shared += 1
    return shared


def _identity(value: ir.Value) -> tuple[Any, ...] | None:
    tensor = value.const_value
    if tensor is None or tensor.dtype == ir.DataType.STRING or tensor.nbytes > _COMPARED:
        return None
    data = tensor.tobytes()
    return tensor.dtype, tuple(tensor.shape), data if len(data) < LARGE else hashlib.sha256(data).digest()
