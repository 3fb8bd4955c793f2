"""Ops that write elements at positions: the Scatters and OneHot."""

from __future__ import annotations

from math import prod

import numpy as np

from onnxport.converters.tflite.broadcasting import broadcast
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.layout import normalized
from onnxport.converters.tflite.numbers.integers import Integers
from onnxport.converters.tflite.ops.indexing import flat, flat_positions, wrapped_tuples
from onnxport.converters.tflite.ops.topk import descending
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value, scalar

# Reductions for which TFLite has no scatter -> what joins two updates of one place.
_JOINS = {"max": "maximum", "min": "minimum", "mul": "mul"}


@lower("ScatterND")
def scatter_nd(node: TflNode, tfl: TflBuilder) -> None:
    """x with slices replaced by, or joined with, updates at tuples of indices (ONNX ScatterND-18)."""
    x, indices, updates = node.x, node.input(1), node.input(2)
    depth = indices.shape[-1]
    if depth is None:
        node.unsupported("indices of an open depth; fix the inputs' sizes with --shape NAME=...")
    tuples = wrapped_tuples(node, tfl)
    join = _JOINS.get(node.attribute("reduction", "none"))
    if join is None:
        node.emit(_scattered(node, tfl, x, tuples, updates))
        return
    if None in x.shape + indices.shape:
        node.unsupported(
            f"reduction {node.attribute('reduction')} over open dimensions; use --shape NAME=..."
        )
    sizes = [dim or 0 for dim in x.shape]
    count, width = prod(dim or 0 for dim in indices.shape[:-1]), prod(sizes[depth:])
    steps = [prod(sizes[axis + 1 : depth]) for axis in range(depth)]
    rows = (Integers(tfl, tfl.reshape(tuples, (count, depth))) * steps).summed(1)
    whole = tfl.reshape(tfl.tensor(x), (prod(sizes[:depth]), width))
    changes = tfl.reshape(tfl.tensor(updates), (count, width))
    node.emit(tfl.computed(tfl.reshape(_joined(tfl, join, whole, rows, changes), x.shape)))


@lower("ScatterElements")
def scatter_elements(node: TflNode, tfl: TflBuilder) -> None:
    """x with x[index[i][j]][j] and so on replaced, or joined with, along an axis (ONNX ScatterElements-18)."""
    x, updates = node.x, node.input(2)
    axis = normalized(node.attribute("axis", 0), x.rank)
    places, changes, everything = flat_positions(node, tfl, axis), flat(tfl, updates), flat(tfl, x)
    count = tfl.shape_of(places)[0]
    join = _JOINS.get(node.attribute("reduction", "none"))
    if join is None:
        tuples = tfl.reshape(places, (count, 1))
        outcome = _scattered(node, tfl, tfl.computed(everything), tuples, tfl.computed(changes))
        result = tfl.tensor(outcome)
    else:
        if count is None and join not in _EXTREMES:
            node.unsupported("reduction mul of an open number of updates; use --shape NAME=...")
        columns = [tfl.reshape(each, (tfl.shape_of(each)[0], 1)) for each in (everything, changes)]
        result = _joined(tfl, join, columns[0], Integers(tfl, places), columns[1])
    if x.shape.count(None) < 2:
        node.emit(tfl.computed(tfl.reshape(result, x.shape)))
        return
    node.emit(tfl.computed(tfl.op("reshape", [result, tfl.run_time_shape(x)], x.shape)))


def _scattered(node: TflNode, tfl: TflBuilder, x: Value, tuples: Tensor, updates: Value) -> Value:
    """TFLite's SCATTER_ND adds up into zeros: what it leaves untouched is taken from x."""
    sums = _into_zeros(tfl, x, tuples, tfl.tensor(updates))
    if node.attribute("reduction", "none") == "add":
        return broadcast(tfl, "add", x, sums)
    written = _into_zeros(tfl, x, tuples, _ones(tfl, updates))
    is_written = broadcast(tfl, "greater", written, scalar(0, np.int32))
    return broadcast(tfl, "select_v2", is_written, sums, x)


def _ones(tfl: TflBuilder, like: Value) -> Tensor:
    shape = tfl.op("shape", [tfl.tensor(like)], [like.rank], np.int32)
    return tfl.op("broadcast_to", [tfl.constant(1, np.int32), shape], like.shape)


def _into_zeros(tfl: TflBuilder, x: Value, tuples: Tensor, updates: Tensor) -> Value:
    shape = tfl.run_time_shape(x) if None in x.shape else tfl.int32([dim or 0 for dim in x.shape])
    return tfl.computed(tfl.op("scatter_nd", [tuples, updates, shape], x.shape))


# ---- reductions that SCATTER_ND lacks


def _joined(tfl: TflBuilder, join: str, x: Tensor, rows: Integers, updates: Tensor) -> Tensor:
    """x [R, W] with updates [K, W] joined into its `rows` [K], of which several may be the same.

    Sorted by row, updates of one row lie together, and one of them comes to stand for all. Only that one is
    written, the others go to a row too many.
    """
    size, width = tfl.shape_of(x)
    if tfl.shape_of(updates)[0] == 0:
        return x
    stand_in = _extreme_of_each_row if join in _EXTREMES and width == 1 else _all_of_each_row
    rows, updates, stands = stand_in(tfl, join, rows, updates)
    height = Integers(tfl, tfl.size(x, 0) if size is None else tfl.int32([size]))
    target = stands.where(rows, height).column()
    shapes = [
        tfl.op("concatenation", [each.tensor, tfl.int32([width or 0])], [2], axis=0)
        for each in (height + 1, height)
    ]
    longer = None if size is None else size + 1
    ones = _ones(tfl, tfl.computed(updates))
    sums, written = (
        tfl.op("scatter_nd", [target.tensor, each, shapes[0]], (longer, width)) for each in (updates, ones)
    )
    sums, written = (
        tfl.op("slice", [each, tfl.int32([0, 0]), shapes[1]], (size, width)) for each in (sums, written)
    )
    is_written = tfl.op("greater", [written, tfl.int32(0)], (size, width), bool)
    return tfl.op("select_v2", [is_written, tfl.op(join, [x, sums], (size, width)), x], (size, width))


# What sorts updates so that the one that stands for its row comes first.
_EXTREMES = {"maximum": False, "minimum": True}


def _extreme_of_each_row(
    tfl: TflBuilder, join: str, rows: Integers, updates: Tensor
) -> tuple[Integers, Tensor, Integers]:
    """Sorted by value, then by row: the first of each row is its extreme. Sorting keeps the order of equals."""
    values = tfl.computed(tfl.reshape(updates, tfl.shape_of(updates)[:1]))
    rising = descending(tfl, values) if _EXTREMES[join] else values
    _, order = _sorted(tfl, tfl.tensor(rising))
    rows, values = (_picked(tfl, each, order) for each in (rows.tensor, tfl.tensor(values)))
    falling, order = _sorted(tfl, (Integers(tfl, tfl.int32(0)) - Integers(tfl, rows)).tensor)
    sorted_rows = Integers(tfl, tfl.int32(0)) - Integers(tfl, falling)
    values = _picked(tfl, values, order)
    count = tfl.shape_of(values)[0]
    longer = tfl.op(
        "concatenation",
        [tfl.int32([-1]), sorted_rows.tensor],
        (None if count is None else count + 1,),
        axis=0,
    )
    before = tfl.op("slice", [longer, tfl.int32([0]), tfl.op("shape", [values], [1], np.int32)], (count,))
    changed = tfl.op("not_equal", [sorted_rows.tensor, before], (count,), bool)
    return sorted_rows, tfl.reshape(values, (count, 1)), Integers(tfl, changed)


def _all_of_each_row(
    tfl: TflBuilder, join: str, rows: Integers, updates: Tensor
) -> tuple[Integers, Tensor, Integers]:
    """Sorted by row: in each round an update takes in the one twice as far before it, so that the last has all."""
    count, width = tfl.shape_of(updates)
    assert count is not None
    falling, order = _sorted(tfl, (Integers(tfl, tfl.int32(0)) - rows).tensor)
    rows, updates = Integers(tfl, tfl.int32(0)) - Integers(tfl, falling), _picked(tfl, updates, order)
    distance = 1
    while distance < count:
        before = tfl.op("concatenation", [updates, updates], (2 * count, width), axis=0)
        before = tfl.slice(before, [count - distance, 0], [count, width])
        both = tfl.op(join, [updates, before], (count, width))
        same = rows.equals(_moved(rows, distance)).column()
        updates = tfl.op("select_v2", [same.tensor, both, updates], (count, width))
        distance *= 2
    goes_on = rows.equals(_moved(rows, -1))
    return rows, updates, Integers(tfl, tfl.op("logical_not", [goes_on.tensor], (count,)))


def _sorted(tfl: TflBuilder, row: Tensor) -> list[Tensor]:
    """The elements from the largest to the smallest, and where they were; equal ones stay in their order."""
    (count,) = tfl.shape_of(row)
    number = tfl.reshape(tfl.size(row, 0), ()) if count is None else tfl.int32(count)
    return tfl.ops("topk_v2", [row, number], [((count,), tfl.dtype_of(row)), ((count,), np.dtype(np.int32))])


def _picked(tfl: TflBuilder, tensor: Tensor, places: Tensor) -> Tensor:
    return tfl.op("gather", [tensor, places], tfl.shape_of(tensor), axis=0, batch_dims=0)


def _moved(rows: Integers, by: int) -> Integers:
    """The row number `by` places before each, -1 where there is none."""
    tfl = rows.tfl
    count = tfl.shape_of(rows.tensor)[0] or 0
    part = tfl.slice(rows.tensor, [max(-by, 0)], [count - abs(by)])
    filler = tfl.int32([-1] * abs(by))
    parts = [filler, part] if by > 0 else [part, filler]
    return Integers(tfl, tfl.op("concatenation", parts, (count,), axis=0))


@lower("OneHot")
def one_hot(node: TflNode, tfl: TflBuilder) -> None:
    """values[1] at each index along a new axis, values[0] elsewhere (ONNX OneHot-11)."""
    indices, depth, values = node.input(0), node.input(1), node.input(2)
    shape = node.output_shape()
    axis = normalized(node.attribute("axis", -1), len(shape))
    count = tfl.reshape(tfl.tensor(tfl.converted(depth, np.int32)), ())
    narrow = tfl.converted(indices, np.int32)
    # An index from -depth to -1 counts from the end; any other outside 0 to depth - 1 is nowhere.
    is_negative = broadcast(tfl, "less", narrow, scalar(0, np.int32))
    moved = broadcast(tfl, "add", narrow, tfl.computed(count))
    places = tfl.tensor(broadcast(tfl, "select_v2", is_negative, moved, narrow))
    pair = tfl.tensor(values)
    off, on = (tfl.reshape(tfl.slice(pair, [i], [1]), ()) for i in (0, 1))
    result = tfl.op("one_hot", [places, count, on, off], shape, axis=-1 if axis == indices.rank else axis)
    node.emit(tfl.computed(result))
