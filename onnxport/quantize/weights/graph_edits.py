"""Graph edits: register tensors, replace a node, remove unused weights."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnxport.quantize.weights.discovery import Weight


def register(graph: ir.Graph, tensors: Sequence[tuple[str, ir.TensorProtocol]]) -> list[ir.Value]:
    """Register initializers, renamed where the graph has the name already."""
    made = []
    for name, tensor in tensors:
        while name in graph.initializers:
            name += "_"
        shape = ir.Shape(tensor.shape.numpy())
        value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=shape, const_value=tensor)
        tensor.name = name
        graph.register_initializer(value)
        made.append(value)
    return made


def replace_node(node: ir.Node, made: Sequence[ir.Node]) -> None:
    """Replace `node` by `made`, whose last node gets its output names."""
    graph, last = node.graph, made[-1]
    assert graph is not None, "a node that was found is in a graph"
    for each in made[:-1]:
        for number, value in enumerate(each.outputs):
            value.name = f"{each.name}/{number}" if number else each.name
    graph.insert_before(node, made)
    for old, new in zip(node.outputs, last.outputs, strict=True):
        new.type, new.shape = old.type, old.shape
        old.replace_all_uses_with(new, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    for old, new in zip(node.outputs, last.outputs, strict=True):
        new.name = old.name


def remove_unused(weight: Weight) -> None:
    """Remove an unused initializer and the Transpose behind it."""
    for mover in {node for node, _ in weight.value.uses()}:
        assert mover.graph is not None
        mover.graph.remove(mover, safe=True)
    del weight.graph.initializers[weight.name]
