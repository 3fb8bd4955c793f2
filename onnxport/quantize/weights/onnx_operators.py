"""Weights in ONNX's own operators, which all converters read: DequantizeLinear, and tables of integers."""

from __future__ import annotations

import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.quantize.weights.discovery import Weight
from onnxport.quantize.weights.encoding import Encoding, Grids, Layout
from onnxport.quantize.weights.graph_edits import Shelf, register, remove_unused, replace_node

# DequantizeLinear has an axis since 13; float16 scales since 19; blocks and four bits since 21.
PER_AXIS, HALF, BLOCKED = 13, 19, 21


def opset_for(layout: Layout, grids: Grids, dtype: ir.DataType) -> int:
    """Return the oldest opset whose DequantizeLinear holds weights of this layout on such grids."""
    if grids.bits != 8 or not _is_per_axis(layout, grids):
        return BLOCKED
    return PER_AXIS if dtype == ir.DataType.FLOAT else HALF


def dequantize(weight: Weight, encoding: Encoding, shelf: Shelf) -> None:
    """Store `weight` as `encoding`, in place, for all its readers."""
    layout, grids, name = weight.layout, encoding.grids, weight.name
    operands = [
        (f"{name}/int{grids.bits}", shelf.numbers(layout.restored(encoding.numbers), grids.bits)),
        (f"{name}/scale", shelf.tensor(_placed(layout, grids, encoding.scales).astype(weight.dtype.numpy()))),
    ]
    if not grids.symmetric:
        zero_points = _placed(layout, grids, encoding.zero_points)
        operands.append((f"{name}/zero_point", shelf.numbers(zero_points, grids.bits)))
    node = ir.node("DequantizeLinear", register(weight.graph, operands), _attributes(layout, grids))
    _replace_initializer(weight, node)


def _replace_initializer(weight: Weight, node: ir.Node) -> None:
    """Insert `node` first in the graph and let it produce the initializer's value."""
    value, result = weight.value, node.outputs[0]
    result.type, result.shape = value.type, value.shape
    value.replace_all_uses_with(result)
    weight.graph.insert_before(weight.graph[0], node)
    remove_unused(weight)
    result.name, node.name = weight.name, f"{weight.name}/dequantize"


def _is_per_axis(layout: Layout, grids: Grids) -> bool:
    """Return whether there is one scale a row and one axis that tells rows apart."""
    return grids.block >= layout.row and layout.channel_axis is not None


def _attributes(layout: Layout, grids: Grids) -> dict[str, int]:
    if _is_per_axis(layout, grids):
        assert layout.channel_axis is not None
        return {"axis": layout.channel_axis}
    (axis,) = layout.summed
    return {"axis": axis, "block_size": min(grids.block, layout.row)}


def _placed(layout: Layout, grids: Grids, of_blocks: Array) -> Array:
    return of_blocks[:, 0] if _is_per_axis(layout, grids) else layout.restored(of_blocks)


def store_table(weight: Weight, encoding: Encoding, shelf: Shelf) -> None:
    """Store the table `weight` as `encoding`, which has one scale a row and no zero points, in place."""
    tensors = [
        (f"{weight.name}/int8", shelf.numbers(encoding.numbers, 8)),
        (f"{weight.name}/scale", shelf.tensor(encoding.scales.astype(weight.dtype.numpy()))),
    ]
    numbers, scales = register(weight.graph, tensors)
    for use in weight.uses:
        _replace(use.node, numbers, scales, weight.dtype)
    remove_unused(weight)


def _replace(node: ir.Node, numbers: ir.Value, scales: ir.Value, dtype: ir.DataType) -> None:
    """Gather integers and scales instead of rows, and multiply them."""
    rows, factors = (
        ir.node("Gather", [table, node.inputs[1]], {"axis": 0}, name=f"{node.name}/{kind}")
        for table, kind in ((numbers, "int8"), (scales, "scale"))
    )
    floats = ir.node("Cast", [rows.outputs[0]], {"to": int(dtype)}, name=f"{node.name}/cast")
    product = ir.node("Mul", [floats.outputs[0], factors.outputs[0]], name=node.name)
    replace_node(node, [rows, factors, floats, product])
