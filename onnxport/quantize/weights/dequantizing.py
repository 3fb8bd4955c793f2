"""Weights behind DequantizeLinear: ONNX's own way, which every runtime and converter knows.

The result of the operator has the name that the weight had, so that a reader finds in the new graph what was in the old.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxport.quantize.weights.encoding import Array, Encoding
from onnxport.quantize.weights.finding import Weight
from onnxport.quantize.weights.layout import Layout
from onnxport.quantize.weights.shelf import Shelf

# DequantizeLinear has an axis since 13; blocks and four bits since 21.
PER_AXIS, BLOCKED = 13, 21


def opset_for(weight: Weight, encoding: Encoding) -> int:
    """The oldest opset whose DequantizeLinear holds this."""
    return PER_AXIS if encoding.grids.bits == 8 and _is_per_axis(weight.layout, encoding) else BLOCKED  # noqa: PLR2004


def dequantize(weight: Weight, encoding: Encoding, shelf: Shelf) -> None:
    """Stores `weight` as `encoding`, in place, for all that read it."""
    value, layout, grids = weight.value, weight.layout, encoding.grids
    graph = value.graph
    assert graph is not None, "an initializer is of a graph"
    operands = [
        (f"{value.name}/int{grids.bits}", shelf.numbers(layout.restored(encoding.numbers), grids.bits)),
        (f"{value.name}/scale", shelf.tensor(_placed(layout, encoding, encoding.scales).astype(weight.dtype.numpy()))),
    ]
    if not grids.symmetric:
        zero_points = _placed(layout, encoding, encoding.zero_points)
        operands.append((f"{value.name}/zero_point", shelf.numbers(zero_points, grids.bits)))
    node = ir.node("DequantizeLinear", register(graph, operands), _attributes(layout, encoding))
    put_in_place(value, node, graph)


def register(graph: ir.Graph, tensors: list[tuple[str, ir.TensorProtocol]]) -> list[ir.Value]:
    """Initializers of these names, made different where the graph has them already."""
    made = []
    for name, tensor in tensors:
        while name in graph.initializers:
            name += "_"
        value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor)
        tensor.name = name
        graph.register_initializer(value)
        made.append(value)
    return made


def put_in_place(value: ir.Value, node: ir.Node, graph: ir.Graph) -> None:
    """Has `node`, put in front of all others, give what the initializer `value` was."""
    result, name = node.outputs[0], value.name
    result.type, result.shape = value.type, value.shape
    value.replace_all_uses_with(result)
    assert name is not None
    del graph.initializers[name]
    result.name, node.name = name, f"{name}/dequantize"
    graph.insert_before(graph[0], node)


def _is_per_axis(layout: Layout, encoding: Encoding) -> bool:
    return encoding.scales.shape[1] == 1 and layout.channel_axis is not None


def _attributes(layout: Layout, encoding: Encoding) -> dict[str, int]:
    if _is_per_axis(layout, encoding):
        assert layout.channel_axis is not None
        return {"axis": layout.channel_axis}
    (axis,) = layout.summed
    return {"axis": axis, "block_size": min(encoding.grids.block, layout.row)}


def _placed(layout: Layout, encoding: Encoding, of_blocks: Array) -> Array:
    return of_blocks[:, 0] if _is_per_axis(layout, encoding) else layout.restored(of_blocks)
