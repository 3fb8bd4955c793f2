"""Grids that a program computes, since MIL has no type for their integers, as QuantizeLinear and DequantizeLinear.

    clip(round(x / scale) [+ zero point], low, high) as int32  ->  QuantizeLinear to the type from low to high
    float(integers [- zero point]) * scale                     ->  DequantizeLinear

Both ends become one only if every reader of the integers has the second form. The scales of the two ends stay apart, so
that unequal ones are a fault. What has another form stays as it is and equals nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array

_TYPES = {
    (float(np.iinfo(each).min), float(np.iinfo(each).max)): np.dtype(each)
    for each in (np.int8, np.uint8, np.int16, np.uint16)
}


@dataclass
class _End:
    """One end of a grid: the last node of its arithmetic, what the first one reads, and its numbers."""

    node: ir.Node
    source: ir.Value
    scale: float
    zero_point: float


def read_wide_grids(graph: ir.Graph) -> dict[str, np.dtype[Any]]:
    """Rewrite the grids of a lifted program in place; return the names of their integers, with their types."""
    found = {}
    for cast in list(graph):
        if _is_cast(cast, ir.DataType.INT32) and (grid := _grid(cast)) is not None:
            quantizer, dequantizers, dtype = grid
            found[str(cast.outputs[0].name)] = dtype
            for each in (*dequantizers, quantizer):
                _replace(graph, "QuantizeLinear" if each is quantizer else "DequantizeLinear", each, dtype)
    if found:
        _remove_unread(graph)
    return found


def _grid(cast: ir.Node) -> tuple[_End, list[_End], np.dtype[Any]] | None:
    """Return both ends of the grid whose integers a Cast gives, and their type; None if it is no grid."""
    clip, codes = _maker(cast.inputs[0], "Clip"), cast.outputs[0]
    if clip is None or len(clip.inputs) != 3:
        return None
    limits = low, high = _number(clip.inputs[1]), _number(clip.inputs[2])
    quantizer, ends = _quantizer(clip, cast), [_dequantizer(codes, use.node) for use in codes.uses()]
    dequantizers = [each for each in ends if each is not None]
    if limits not in _TYPES or quantizer is None or not ends or len(dequantizers) != len(ends):
        return None
    if not all(low <= each.zero_point <= high for each in (quantizer, *dequantizers)):
        return None
    return quantizer, dequantizers, _TYPES[limits]


def _quantizer(clip: ir.Node, cast: ir.Node) -> _End | None:
    shift = _maker(clip.inputs[0], "Add")
    zero_point = 0.0 if shift is None else _number(shift.inputs[1])
    rounding = _maker(clip.inputs[0] if shift is None else shift.inputs[0], "Round")
    division = None if rounding is None else _maker(rounding.inputs[0], "Div")
    if division is None or division.inputs[0] is None or zero_point % 1 != 0:
        return None
    scale = _number(division.inputs[1])
    return _End(cast, division.inputs[0], scale, zero_point) if scale > 0 else None


def _dequantizer(codes: ir.Value, reader: ir.Node) -> _End | None:
    cast, zero_point = reader, 0.0
    if reader.op_type == "Sub" and reader.inputs[0] is codes and (only := _only_reader(reader)) is not None:
        cast, zero_point = only, _number(reader.inputs[1])
    product = _only_reader(cast) if _is_cast(cast, ir.DataType.FLOAT) else None
    if product is None or product.op_type != "Mul" or zero_point % 1 != 0:
        return None
    for operand, other in (product.inputs, product.inputs[::-1]):
        if operand is cast.outputs[0] and (scale := _number(other)) > 0:
            return _End(product, codes, scale, zero_point)
    return None


def _replace(graph: ir.Graph, op: str, end: _End, dtype: np.dtype[Any]) -> None:
    """Put QuantizeLinear or DequantizeLinear in place of the arithmetic; its result keeps the name."""
    old = end.node.outputs[0]
    name = str(old.name)
    numbers = [
        _constant(graph, f"{name}/{what}", array)
        for what, array in (
            ("scale", np.array(end.scale, np.float32)),
            ("zero_point", np.array(end.zero_point, dtype)),
        )
    ]
    node = ir.node(op, [end.source, *numbers], name=str(end.node.name))
    graph.insert_before(end.node, node)
    old.replace_all_uses_with(node.outputs[0], replace_graph_outputs=True)
    graph.remove(end.node, safe=True)
    node.outputs[0].name = name


def _remove_unread(graph: ir.Graph) -> None:
    """Remove what the arithmetic leaves behind: a proof would count it as nodes of the program."""
    for node in reversed(list(graph)):
        if not any(each.uses() or each.is_graph_output() for each in node.outputs):
            graph.remove(node, safe=True)


def _constant(graph: ir.Graph, name: str, array: Array) -> ir.Value:
    tensor = ir.Tensor(array, name=name)
    value = ir.Value(
        name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor
    )
    graph.register_initializer(value)
    return value


def _maker(value: ir.Value | None, op: str) -> ir.Node | None:
    node = None if value is None else value.producer()
    return node if node is not None and node.op_type == op and node.domain == "" else None


def _only_reader(node: ir.Node) -> ir.Node | None:
    readers = [each.node for each in node.outputs[0].uses()]
    return readers[0] if len(readers) == 1 else None


def _is_cast(node: ir.Node, to: ir.DataType) -> bool:
    return node.op_type == "Cast" and node.attributes.get_int("to", 0) == to


def _number(value: ir.Value | None) -> float:
    """Return the one element of a constant; NaN of what is computed or has more."""
    if value is None or value.const_value is None or value.const_value.size != 1:
        return np.nan
    return float(value.const_value.numpy().item())
