"""Ops that write elements at positions: the Scatters and OneHot."""

from __future__ import annotations

from math import prod

import numpy as np

from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.formulas import Integers
from onnxport.converters.tflite.layout import normalize_axis, product
from onnxport.converters.tflite.ops.indexing import (
    add_to_negative,
    flat_positions,
    flatten,
    reshape_like,
    wrap_tuples,
)
from onnxport.converters.tflite.ops.topk import reverse_order
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value

# Reductions for which TFLite has no scatter -> tfl op that joins two updates of one position.
_JOINS = {"max": "maximum", "min": "minimum", "mul": "mul"}


@lower("ScatterND")
def scatter_nd(node: TflNode, tfl: TflBuilder) -> None:
    """Replace slices of x by updates at tuples of indices, or reduce them with the updates (ONNX ScatterND-18)."""
    x, indices, updates = node.x, node.input(1), node.input(2)
    depth = indices.shape[-1]
    if depth is None:
        node.unsupported("indices of an open depth; fix the inputs' sizes with --shape NAME=...")
    tuples = wrap_tuples(node, tfl)
    join = _JOINS.get(node.attribute("reduction", "none"))
    if join is None:
        node.emit(_scatter(node, tfl, x, tuples, updates))
        return
    if None in x.shape + indices.shape:
        node.unsupported(
            f"reduction {node.attribute('reduction')} over open dimensions; use --shape NAME=..."
        )
    sizes = [dim or 0 for dim in x.shape]
    count, width = product(indices.shape[:-1]), prod(sizes[depth:])
    steps = [prod(sizes[axis + 1 : depth]) for axis in range(depth)]
    rows = (Integers(tfl, tfl.reshape(tuples, (count, depth))) * steps).sum(1)
    matrix = tfl.reshape(tfl.tensor(x), (prod(sizes[:depth]), width))
    changes = tfl.reshape(tfl.tensor(updates), (count, width))
    node.emit(tfl.value(tfl.reshape(_reduce_rows(tfl, join, matrix, rows, changes), x.shape)))


@lower("ScatterElements")
def scatter_elements(node: TflNode, tfl: TflBuilder) -> None:
    """Replace x[index[i][j]][j] and so on, or reduce it with updates, along an axis (ONNX ScatterElements-18)."""
    x, updates = node.x, node.input(2)
    axis = normalize_axis(node.attribute("axis", 0), x.rank)
    places, changes, elements = flat_positions(node, tfl, axis), flatten(tfl, updates), flatten(tfl, x)
    count = tfl.shape_of(places)[0]
    join = _JOINS.get(node.attribute("reduction", "none"))
    if join is None:
        tuples = tfl.reshape(places, (count, 1))
        result = tfl.tensor(_scatter(node, tfl, tfl.value(elements), tuples, tfl.value(changes)))
    else:
        if count is None and join not in _EXTREMES:
            node.unsupported("reduction mul of an open number of updates; use --shape NAME=...")
        columns = [tfl.reshape(each, (tfl.shape_of(each)[0], 1)) for each in (elements, changes)]
        result = _reduce_rows(tfl, join, columns[0], Integers(tfl, places), columns[1])
    node.emit(reshape_like(tfl, result, x))


def _scatter(node: TflNode, tfl: TflBuilder, x: Value, tuples: Tensor, updates: Value) -> Value:
    """Scatter with TFLite's SCATTER_ND, which adds up into zeros; untouched elements come from x."""
    sums = _scatter_into_zeros(tfl, x, tuples, tfl.tensor(updates))
    if node.attribute("reduction", "none") == "add":
        return tfl.broadcast("add", x, sums)
    written = _scatter_into_zeros(tfl, x, tuples, _ones(tfl, updates))
    is_written = tfl.broadcast("greater", written, 0)
    return tfl.broadcast("select_v2", is_written, sums, x)


def _ones(tfl: TflBuilder, like: Value) -> Tensor:
    shape = tfl.sizes(tfl.tensor(like))
    return tfl.op("broadcast_to", [tfl.constant(1, np.int32), shape], like.shape)


def _scatter_into_zeros(tfl: TflBuilder, x: Value, tuples: Tensor, updates: Tensor) -> Value:
    shape = tfl.run_time_shape(x) if None in x.shape else tfl.int32([dim or 0 for dim in x.shape])
    return tfl.value(tfl.op("scatter_nd", [tuples, updates, shape], x.shape))


# ---- reductions that SCATTER_ND lacks


def _reduce_rows(tfl: TflBuilder, join: str, x: Tensor, rows: Integers, updates: Tensor) -> Tensor:
    """Reduce x [R, W] with updates [K, W] at `rows` [K], several of which may be the same.

    Sorting brings updates of one row together, and one of them is made the reduction of all. Only that one is
    written; the others go to an extra row.
    """
    size, width = tfl.shape_of(x)
    if tfl.shape_of(updates)[0] == 0:
        return x
    reduce = _find_extremes if join in _EXTREMES and width == 1 else _join_equal_rows
    rows, updates, is_reduction = reduce(tfl, join, rows, updates)
    height = Integers(tfl, tfl.size(x, 0) if size is None else tfl.int32([size]))
    target = is_reduction.where(rows, height).column()
    longer_shape, shape = (
        tfl.concatenate([each.tensor, tfl.int32([width or 0])]) for each in (height + 1, height)
    )
    longer = None if size is None else size + 1
    ones = _ones(tfl, tfl.value(updates))
    sums, written = (
        tfl.op("scatter_nd", [target.tensor, each, longer_shape], (longer, width)) for each in (updates, ones)
    )
    sums, written = (
        tfl.op("slice", [each, tfl.int32([0, 0]), shape], (size, width)) for each in (sums, written)
    )
    is_written = tfl.op("greater", [written, tfl.int32(0)], (size, width), bool)
    return tfl.op("select_v2", [is_written, tfl.op(join, [x, sums], (size, width)), x], (size, width))


_EXTREMES = ("maximum", "minimum")


def _find_extremes(
    tfl: TflBuilder, join: str, rows: Integers, updates: Tensor
) -> tuple[Integers, Tensor, Integers]:
    """Sort by value, then stably by row, and mark the first update of each row, its extreme."""
    values = tfl.value(tfl.reshape(updates, tfl.shape_of(updates)[:1]))
    _, order = _sort(tfl, tfl.tensor(reverse_order(tfl, values) if join == "minimum" else values))
    rows, values = (tfl.gather(each, order) for each in (rows.tensor, tfl.tensor(values)))
    falling, order = _sort(tfl, (0 - Integers(tfl, rows)).tensor)
    sorted_rows = 0 - Integers(tfl, falling)
    values = tfl.gather(values, order)
    count = tfl.shape_of(values)[0]
    longer = tfl.concatenate([tfl.int32([-1]), sorted_rows.tensor])
    before = tfl.op("slice", [longer, tfl.int32([0]), tfl.sizes(values)], (count,))
    changed = tfl.op("not_equal", [sorted_rows.tensor, before], (count,), bool)
    return sorted_rows, tfl.reshape(values, (count, 1)), Integers(tfl, changed)


def _join_equal_rows(
    tfl: TflBuilder, join: str, rows: Integers, updates: Tensor
) -> tuple[Integers, Tensor, Integers]:
    """Sort by row and join updates over distances of 1, 2, 4, ..., so that the last of each row has them all."""
    count, width = tfl.shape_of(updates)
    assert count is not None
    falling, order = _sort(tfl, (0 - rows).tensor)
    rows, updates = 0 - Integers(tfl, falling), tfl.gather(updates, order)
    distance = 1
    while distance < count:
        before = tfl.slice(tfl.concatenate([updates, updates]), [count - distance, 0], [count, width])
        both = tfl.op(join, [updates, before], (count, width))
        same = rows.equals(_shift(rows, distance)).column()
        updates = tfl.op("select_v2", [same.tensor, both, updates], (count, width))
        distance *= 2
    continues = rows.equals(_shift(rows, -1))
    return rows, updates, Integers(tfl, tfl.op("logical_not", [continues.tensor], (count,)))


def _sort(tfl: TflBuilder, row: Tensor) -> list[Tensor]:
    """Sort stably from the largest to the smallest element; return these and where they were."""
    (count,) = tfl.shape_of(row)
    number = tfl.reshape(tfl.size(row, 0), ()) if count is None else tfl.int32(count)
    return tfl.ops("topk_v2", [row, number], [((count,), tfl.dtype_of(row)), ((count,), np.dtype(np.int32))])


def _shift(rows: Integers, by: int) -> Integers:
    """Return the row number `by` positions before each, -1 if there is none."""
    tfl = rows.tfl
    count = tfl.shape_of(rows.tensor)[0] or 0
    part = tfl.slice(rows.tensor, [max(-by, 0)], [count - abs(by)])
    filler = tfl.int32([-1] * abs(by))
    parts = [filler, part] if by > 0 else [part, filler]
    return Integers(tfl, tfl.concatenate(parts))


@lower("OneHot")
def one_hot(node: TflNode, tfl: TflBuilder) -> None:
    """values[1] at each index along a new axis, values[0] elsewhere (ONNX OneHot-11)."""
    indices, depth, values = node.input(0), node.input(1), node.input(2)
    shape = node.output_shape()
    axis = normalize_axis(node.attribute("axis", -1), len(shape))
    count = tfl.reshape(tfl.tensor(tfl.convert(depth, np.int32)), ())
    narrow = tfl.convert(indices, np.int32)
    # An index from -depth to -1 counts from the end; any other outside 0 to depth - 1 gives no 1.
    places = tfl.tensor(add_to_negative(tfl, narrow, tfl.value(count)))
    pair = tfl.tensor(values)
    off, on = (tfl.reshape(tfl.slice(pair, [i], [1]), ()) for i in (0, 1))
    result = tfl.op("one_hot", [places, count, on, off], shape, axis=-1 if axis == indices.rank else axis)
    node.emit(tfl.value(result))
