"""Operators that compute with positions along an axis: Unique, CumProd, TensorScatter."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx_ir as ir

from onnxport.optimizers.rewrites.registry import Rewrite, rewrites
from onnxport.optimizers.rewrites.sizes import arange, integers, size_of, slice_axis

_INT32, _INT64 = ir.DataType.INT32.value, ir.DataType.INT64.value
_TO_THE_END = integers(2**31 - 1)
# Comparing all pairs of slices is quadratic in their number.
_MOST_COMPARISONS = 2**26


@rewrites("Unique")
def unique(node: Rewrite) -> None:
    """Find the distinct elements, or slices along an axis, with positions and counts (ONNX Unique-11).

    After sorting, a group starts where an element differs from the one before. A stable sort keeps the first
    occurrence first.
    """
    source, axis = node.input(0), node.attribute("axis")
    sizes = node.shape(source)
    if axis is None:
        source = keys = node.op("Reshape", source, integers(-1))
        count = None if None in sizes else prod(size or 0 for size in sizes)
        axis = 0
    else:
        count = sizes[axis]
        if None not in sizes and prod(size or 0 for size in sizes) * (count or 0) > _MOST_COMPARISONS:
            node.unsupported(f"of {count} slices; comparing all pairs is too much")
        keys = _lexicographic(node, source, axis % len(sizes), len(sizes))
    if count == 0:
        node.unsupported("of nothing")
    total = size_of(node, keys, 0)
    values, order = node.op("TopK", keys, total, outputs=2, largest=0, sorted=1)
    starts = _starts(node, values, total, count)
    places = node.op("Squeeze", node.op("NonZero", starts), integers(0))
    firsts = node.op("Gather", order, places)
    ends = node.op("Concat", slice_axis(node, places, integers(1), _TO_THE_END, 0), total, axis=0)
    counts = node.op("Sub", ends, places)
    groups = node.op("CumSum", node.op("Cast", starts, to=_INT64), np.array(0))
    inverse = node.op("ScatterElements", order, order, node.op("Sub", groups, np.array(1)), axis=0)
    if not node.attribute("sorted", 1):
        firsts, counts, inverse = _by_occurrence(node, firsts, counts, inverse)
    for index, result in enumerate((node.op("Gather", source, firsts, axis=axis), firsts, inverse, counts)):
        if node.wants_output(index):
            node.emit(result, index)


def _starts(node: Rewrite, values: ir.Value, total: ir.Value, count: int | None) -> ir.Value:
    """Return whether each sorted value is the first of its group."""
    if count == 1:
        return node.array(np.array([True]))
    later = slice_axis(node, values, integers(1), _TO_THE_END, 0)
    earlier = slice_axis(node, values, integers(0), node.op("Sub", total, integers(1)), 0)
    differs = node.op("Not", node.op("Equal", later, earlier))
    return node.op("Concat", np.array([True]), differs, axis=0)


def _by_occurrence(
    node: Rewrite, firsts: ir.Value, counts: ir.Value, inverse: ir.Value
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Reorder the groups by first occurrence instead of value."""
    total = size_of(node, firsts, 0)
    firsts, order = node.op("TopK", firsts, total, outputs=2, largest=0, sorted=1)
    moved = node.op("ScatterElements", order, order, arange(node, total), axis=0)
    return firsts, node.op("Gather", counts, order), node.op("Gather", moved, inverse)


def _lexicographic(node: Rewrite, source: ir.Value, axis: int, rank: int) -> ir.Value:
    """Return, for each slice, the number of slices that precede it element by element."""
    front = [axis, *(place for place in range(rank) if place != axis)]
    rows = node.op("Transpose", source, perm=front)
    rows = node.op("Reshape", rows, node.op("Concat", size_of(node, rows, 0), integers(-1), axis=0))
    these, others = (node.op("Unsqueeze", rows, integers(place)) for place in (1, 0))
    greater, less = (node.op("Cast", node.op(op, these, others), to=_INT32) for op in ("Greater", "Less"))
    zero = np.array(0, np.int32)
    before = node.op("CumSum", node.op("Add", greater, less), np.array(2), exclusive=1)
    is_decided = node.op("Cast", node.op("Equal", before, zero), to=_INT32)
    # The sign of the first difference: what comes before it is 0.
    signs = node.op("Mul", node.op("Sub", greater, less), is_decided)
    sign = node.op("ReduceSum", signs, integers(2), keepdims=0)
    is_after = node.op("Cast", node.op("Greater", sign, zero), to=_INT32)
    return node.op("ReduceSum", is_after, integers(1), keepdims=0)


@rewrites("CumProd")
def cumulative_product(node: Rewrite) -> None:
    """Compute running products along an axis (ONNX CumProd-26) by masking with a triangle."""
    x = node.input(0)
    rank = len(node.shape(x))
    place = int(node.constant(1, "its axis").item()) % rank
    numbers = arange(node, size_of(node, x, place))
    own, others = (node.op("Unsqueeze", numbers, integers(each)) for each in (1, 0))
    comparison = "Greater" if node.attribute("reverse", 0) else "Less"
    comparison += "" if node.attribute("exclusive", 0) else "OrEqual"
    kept = node.op(comparison, others, own)  # [result, factor]
    behind = rank - 1 - place
    kept = node.op("Unsqueeze", kept, integers(*range(2, 2 + behind))) if behind else kept
    factors = node.op("Unsqueeze", x, integers(place))
    masked = node.op("Where", kept, factors, np.array(1, node.dtype(x)))
    node.emit(node.op("ReduceProd", masked, integers(place + 1), keepdims=0))


@rewrites("TensorScatter")
def tensor_scatter(node: Rewrite) -> None:
    """Write each batch entry's update into the cache from its own position on (ONNX TensorScatter-24)."""
    cache, update, starts = node.input(0), node.input(1), node.optional(2)
    rank = len(node.shape(cache))
    axis = node.attribute("axis", -2) % rank
    places = node.op("Unsqueeze", arange(node, size_of(node, update, axis)), integers(0))
    if starts is not None:
        places = node.op("Add", places, node.op("Unsqueeze", starts, integers(1)))
    if node.attribute("mode", "linear") == "circular":
        places = node.op("Mod", places, size_of(node, cache, axis))
    between = [place for place in range(1, rank) if place != axis]
    places = node.op("Unsqueeze", places, integers(*between)) if between else places
    indices = node.op("Expand", places, node.op("Shape", update))
    node.emit(node.op("ScatterElements", cache, indices, update, axis=axis))
