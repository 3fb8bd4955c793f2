"""Weights of 8 bits that a graph widens itself: Mul(Cast(constant), scale) becomes DequantizeLinear.

Constant folding would make floats of them, four times as large. DequantizeLinear computes the same numbers, and is not
folded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.initializers import add_initializer
from onnxport.formats.model import Model
from onnxport.optimizers.patterns import array, producer

_NARROW = (ir.DataType.INT8, ir.DataType.UINT8)
_LEAST = 1024  # elements; fewer save less than an operator costs
_SINCE = 10  # the opset of DequantizeLinear


@dataclass(frozen=True)
class _Widened:
    """Stored numbers, and the zero that is subtracted from them, if any."""

    numbers: ir.Value
    zero: Array | None = None


def write_dequantization(model: Model) -> int:
    """Rewrite the weights; return how many."""
    if model.opset < _SINCE:
        return 0
    return sum(_rewrite(graph, node) for graph in model.ir.graphs() for node in list(graph))


def _rewrite(graph: ir.Graph, node: ir.Node) -> bool:
    if node.op_type != "Mul" or node.domain not in ("", "ai.onnx"):
        return False
    for operand, other in (node.inputs, reversed(node.inputs)):
        found, scale = _find_widened(operand), array(other)
        if found is None or scale is None or scale.dtype != np.float32:
            continue
        place = _place(found, scale)
        if place is not None:
            _replace(graph, node, found, scale, place)
            return True
    return False


def _find_widened(value: ir.Value | None) -> _Widened | None:
    """Return the numbers behind Cast, or behind Cast and Sub."""
    if (subtraction := producer(value, "Sub")) is not None:
        zero, inner = array(subtraction.inputs[1]), _find_widened(subtraction.inputs[0])
        return (
            None if zero is None or inner is None or inner.zero is not None else _Widened(inner.numbers, zero)
        )
    cast = producer(value, "Cast")
    source = None if cast is None else cast.inputs[0]
    if cast is None or source is None or cast.attributes.get_int("to") != ir.DataType.FLOAT:
        return None
    stored = source.const_value
    is_narrow = stored is not None and stored.dtype in _NARROW and stored.size >= _LEAST
    return _Widened(source) if is_narrow else None


def _place(found: _Widened, scale: Array) -> int | None:
    """Return the axis along which the scales differ, 0 for a single one; None for no form of DequantizeLinear."""
    stored = found.numbers.const_value
    assert stored is not None
    sizes = stored.numpy().shape
    if (zero := found.zero) is not None:
        with np.errstate(invalid="ignore"):
            fits = np.array_equal(zero.astype(stored.dtype.numpy()), zero)
        if zero.shape != scale.shape or not fits:
            return None
    if scale.size == 1:
        return 0 if scale.ndim <= len(sizes) else None
    aligned = (1,) * (len(sizes) - scale.ndim) + scale.shape
    axes = [axis for axis, size in enumerate(aligned) if size != 1]
    is_one = len(aligned) == len(sizes) and len(axes) == 1 and aligned[axes[0]] == sizes[axes[0]]
    return axes[0] if is_one else None


def _replace(graph: ir.Graph, node: ir.Node, found: _Widened, scale: Array, axis: int) -> None:
    result, stored = node.outputs[0], found.numbers.const_value
    assert stored is not None
    shape = () if scale.size == 1 else (-1,)
    inputs = [found.numbers, add_initializer(graph, f"{result.name}.scale", scale.reshape(shape))]
    if found.zero is not None:
        zero = found.zero.astype(stored.dtype.numpy()).reshape(shape)
        inputs.append(add_initializer(graph, f"{result.name}.zero", zero))
    new = ir.node("DequantizeLinear", inputs, {"axis": axis} if shape else {}, name=node.name)
    graph.insert_before(node, new)
    name, result.name = result.name, None
    new.outputs[0].name, new.outputs[0].type, new.outputs[0].shape = name, result.type, result.shape
    result.replace_all_uses_with(new.outputs[0], replace_graph_outputs=True)
    graph.remove(node, safe=True)
