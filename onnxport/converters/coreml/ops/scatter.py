"""Ops that write elements at positions: the Scatters and OneHot."""

from __future__ import annotations

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder, MilNode
from onnxport.converters.coreml.numbers.formulas import Term
from onnxport.converters.coreml.numbers.integer_widths import is_narrow, wrap
from onnxport.converters.coreml.ops.indexing import (
    flatten,
    same_sizes,
    to_gatherable,
    wrap_indices,
    wrap_tuples,
)
from onnxport.converters.coreml.ops.reshape import insert_axes
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.shapes.integers import Integers, arange, integers, normalize_axis, sizes_of
from onnxport.converters.coreml.values import Value

# ONNX's reduction -> MIL's mode.
_MODES = {"none": "update", "add": "add", "mul": "mul", "max": "max", "min": "min"}


def _wrap_sums(mil: MilBuilder, node: MilNode, result: Value) -> Value:
    """Wrap sums of narrow integers around as their type does."""
    is_sum = node.attribute("reduction", "none") == "add" and is_narrow(node.x.dtype)
    return wrap(Term(mil, result), node.x.dtype).value if is_sum else result


def _mode(node: MilNode) -> str:
    reduction = node.attribute("reduction", "none")
    if reduction not in _MODES:
        node.unsupported(f"reduction {reduction!r}")
    if reduction == "mul" and is_narrow(node.x.dtype):
        node.unsupported(
            f"reduction {reduction} of {node.x.dtype.name}, which wraps around; cast to int32 first"
        )
    return _MODES[reduction]


@lower("ScatterND")
def scatter_nd(node: MilNode, mil: MilBuilder) -> None:
    """Replace slices of x by updates at tuples of indices, or reduce them with the updates (ONNX ScatterND-18)."""
    x, updates = node.input(0), node.input(2)
    if 0 in updates.shape:
        node.input(1), node.attribute("reduction", "none")
        node.emit(x)
        return
    tuples, mode = wrap_tuples(node, mil), _mode(node)
    data, changes = to_gatherable(mil, x), to_gatherable(mil, updates)
    result = mil.scatter_nd(data=data, indices=tuples.value, updates=changes, mode=mode)
    node.emit(_wrap_sums(mil, node, result))


@lower("ScatterElements")
def scatter_elements(node: MilNode, mil: MilBuilder) -> None:
    """Replace x[index[i][j]][j] and so on, or reduce it with updates, along an axis (ONNX ScatterElements-18)."""
    x, indices, updates = node.input(0), node.input(1), node.input(2)
    axis, mode = normalize_axis(node.attribute("axis", 0), x.rank), _mode(node)
    if 0 in updates.shape:
        node.emit(x)
        return
    places = wrap_indices(node, mil, indices, axis)
    data, changes = to_gatherable(mil, x), to_gatherable(mil, updates)
    if same_sizes(mil, x, indices, axis):
        where = {"indices": places.value, "updates": changes, "axis": axis}  # MIL keeps this order
        result = mil.scatter_along_axis(data=data, **where, mode=mode)
    else:
        tuples = _coordinates(mil, indices, places, axis)
        result = mil.scatter_nd(data=data, indices=tuples.value, updates=flatten(mil, changes), mode=mode)
    node.emit(_wrap_sums(mil, node, result))


def _coordinates(mil: MilBuilder, indices: Value, places: Integers, axis: int) -> Integers:
    """Return the target of each update, [elements, rank], for indices that do not cover the other axes."""
    rank, sizes = indices.rank, sizes_of(mil, indices)
    columns = []
    for other in range(rank):
        if other == axis:
            column = places
        else:
            form = [-1 if i == other else 1 for i in range(rank)]
            column = arange(mil, sizes.element(other)).reshape(*form) + places * 0
        columns.append(column.reshape(-1, 1))
    if all(column.known is not None for column in columns):
        return Integers(mil, np.concatenate([np.asarray(column.known) for column in columns], 1))
    return Integers(mil, mil.concat(values=[column.value for column in columns], axis=1))


@lower("OneHot")
def one_hot(node: MilNode, mil: MilBuilder) -> None:
    """values[1] at each index along a new axis, values[0] elsewhere (ONNX OneHot-11).

    Compares instead of using MIL's one_hot, which wants constant values and does not document indices out of range.
    """
    indices, depth, values = node.input(0), node.input(1), node.input(2)
    rank = indices.rank + 1
    axis = normalize_axis(node.attribute("axis", -1), rank)
    count = integers(mil, depth).reshape() if depth.rank else integers(mil, depth)
    # An index from -depth to -1 counts from the end; any other outside 0 to depth - 1 gives no 1.
    places = integers(mil, indices).within(count)
    row = arange(mil, count).reshape(*[-1 if i == axis else 1 for i in range(rank)])
    hits = Integers(mil, insert_axes(mil, places.value, [axis])).equals(row)
    pair = values.constant
    if pair is not None and list(pair) == [0, 1]:
        node.emit(hits.value)
        return
    off, on = (mil.gather(x=to_gatherable(mil, values), indices=i, axis=0) for i in (0, 1))
    node.emit(mil.select(cond=hits.value, a=on, b=off))
