"""One node where several compute the same of the same."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnxport.optimizers.simplification.graph import Scene
from onnxport.optimizers.simplification.registry import simplification

# Not functions of their inputs; and those of which integer kernels want one for each reader.
_KEPT = frozenset(
    (
        "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike "
        "QuantizeLinear DequantizeLinear"
    ).split()
)


@simplification(
    "share-subexpressions",
    "Keeps one of several nodes of the same operator, operands and attributes.",
    keeps="Random numbers, nodes with branches or bodies, nodes of two outputs of the graph, and Q and DQ, of which "
    "integer kernels want one for each reader.",
)
def share_subexpressions(scene: Scene) -> int:
    return sum(_share(graph) for graph in scene.graphs())


def _share(graph: ir.Graph) -> int:
    alike: dict[Any, list[ir.Node]] = {}
    shared = 0
    for node in list(graph):
        if node.op_type in _KEPT:
            continue
        others = alike.setdefault((node.domain, node.op_type, tuple(map(id, node.inputs))), [])
        other = next((each for each in others if _same_attributes(each, node)), None)
        if other is None:
            others.append(node)
        elif not any(value.is_graph_output() for value in node.outputs) and _gives_all(other, node):
            for mine, theirs in zip(node.outputs, other.outputs, strict=True):
                mine.replace_all_uses_with(theirs)
            graph.remove(node, safe=True)
            shared += 1
    return shared


def _gives_all(node: ir.Node, other: ir.Node) -> bool:
    """Whether a node has a result for each that is read of another; optional ones may be left out."""
    return all(
        mine.name or not theirs.uses() for mine, theirs in zip(node.outputs, other.outputs, strict=True)
    )


def _same_attributes(a: ir.Node, b: ir.Node) -> bool:
    if len(a.outputs) != len(b.outputs) or set(a.attributes) != set(b.attributes):
        return False
    return all(_same(a.attributes[name], b.attributes[name]) for name in a.attributes)


def _same(a: ir.Attr, b: ir.Attr) -> bool:
    if a.type != b.type or a.is_ref() or b.is_ref():
        return False
    if a.type == ir.AttributeType.TENSOR:
        one, two = a.as_tensor(), b.as_tensor()
        return one.dtype == two.dtype and one.shape == two.shape and one.tobytes() == two.tobytes()
    return a.type in _PLAIN and bool(a.value == b.value)


_PLAIN = frozenset(
    getattr(ir.AttributeType, name) for name in ("INT", "INTS", "FLOAT", "FLOATS", "STRING", "STRINGS")
)
