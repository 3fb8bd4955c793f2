"""Sizes and positions computed at run time: vectors of one int64."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.optimizers.rewrites.registry import Rewrite


def integers(*values: int) -> Array:
    return np.array(values, np.int64)


def size_of(node: Rewrite, value: ir.Value, axis: int) -> ir.Value:
    """Return one dimension; only the rank must be known."""
    return node.op("Shape", value, start=axis, end=None if axis == -1 else axis + 1)


def arange(node: Rewrite, limit: ir.Value) -> ir.Value:
    """Return 0, 1, ... below `limit`."""
    end = node.op("Squeeze", limit, integers(0))
    return node.op("Range", np.array(0), end, np.array(1))


def slice_axis(
    node: Rewrite, value: ir.Value, start: ir.Value | Array, end: ir.Value | Array, axis: int
) -> ir.Value:
    """Slice one axis."""
    return node.op("Slice", value, start, end, integers(axis))


def divide(node: Rewrite, number: ir.Value, divisor: ir.Value | Array) -> ir.Value:
    """Divide as int32, which more targets support."""
    parts = [node.op("Cast", each, to=ir.DataType.INT32.value) for each in (number, divisor)]
    return node.op("Cast", node.op("Div", *parts), to=ir.DataType.INT64.value)
