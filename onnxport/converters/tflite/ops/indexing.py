"""Ops that pick elements by position: the Gathers, Compress, NonZero, ReverseSequence."""

from __future__ import annotations

from math import prod

import numpy as np

from onnxport.converters.semantics import check_indices
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.formulas import Integers
from onnxport.converters.tflite.layout import normalize_axis, product
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value, constant


@lower("ReverseSequence")
def reverse_sequence(node: TflNode, tfl: TflBuilder) -> None:
    """Reverse the first elements of each sequence in a batch (ONNX ReverseSequence-10)."""
    axes = {"seq_dim": node.attribute("time_axis", 0), "batch_dim": node.attribute("batch_axis", 1)}
    operands = [tfl.tensor(node.x), tfl.tensor(tfl.convert(node.input(1), np.int32))]
    node.emit(tfl.value(tfl.op("reverse_sequence", operands, node.x.shape, **axes)))


@lower("Gather")
def gather(node: TflNode, tfl: TflBuilder) -> None:
    """Pick slices along an axis by index (ONNX Gather-13); a negative index counts from the end."""
    x, wanted = node.input(0), node.input(1)
    axis = normalize_axis(node.attribute("axis", 0), x.rank)
    indices = _wrap_indices(node, tfl, wanted, axis)
    shape = (*x.shape[:axis], *wanted.shape, *x.shape[axis + 1 :])
    node.emit(tfl.value(tfl.gather(tfl.tensor(x), indices, axis, shape)))


def _wrap_indices(node: TflNode, tfl: TflBuilder, indices: Value, axis: int) -> Tensor:
    """Add the size of x's `axis` to negative indices, for which TFLite reads out of bounds."""
    x = node.input(0)
    size = x.shape[axis]
    if indices.constant is not None:
        positions = indices.constant
        check_indices(node, positions, [size])
        if size is not None or (positions >= 0).all():
            return tfl.int32(np.where(positions < 0, positions + (size or 0), positions))
    if indices.is_natural:
        return tfl.tensor(indices)
    length = tfl.value(tfl.reshape(tfl.size(tfl.tensor(x), axis), ())) if size is None else size
    return tfl.tensor(add_to_negative(tfl, indices, length))


def add_to_negative(tfl: TflBuilder, indices: Value, sizes: Value | int) -> Value:
    """Add sizes to negative indices, which count from the end of an axis."""
    is_negative = tfl.broadcast("less", indices, 0)
    sizes = sizes if isinstance(sizes, int) else tfl.convert(sizes, indices.dtype)
    moved = tfl.broadcast("add", indices, sizes)
    return tfl.broadcast("select_v2", is_negative, moved, indices)


@lower("GatherElements")
def gather_elements(node: TflNode, tfl: TflBuilder) -> None:
    """y[i][j] = x[index[i][j]][j] and so on along an axis (ONNX GatherElements-13)."""
    x, indices = node.input(0), node.input(1)
    axis = normalize_axis(node.attribute("axis", 0), x.rank)
    places = flat_positions(node, tfl, axis)
    node.emit(reshape_like(tfl, tfl.gather(flatten(tfl, x), places), indices))


def reshape_like(tfl: TflBuilder, tensor: Tensor, like: Value) -> Value:
    """Reshape a tensor to the shape of `like`."""
    if like.shape.count(None) < 2:
        return tfl.value(tfl.reshape(tensor, like.shape))
    return tfl.value(tfl.op("reshape", [tensor, tfl.run_time_shape(like)], like.shape))


def flatten(tfl: TflBuilder, x: Value) -> Tensor:
    """Return the elements of x as one row."""
    return tfl.reshape(tfl.tensor(x), (product(x.shape),))


def flat_positions(node: TflNode, tfl: TflBuilder, axis: int) -> Tensor:
    """Return the position in flattened x of each element of input 1, which gives the position along `axis`."""
    x, indices = node.input(0), node.input(1)
    if None in x.shape or None in indices.shape:
        return _open_positions(tfl, node, x, indices, axis)
    sizes = [dim or 0 for dim in x.shape]
    steps = [prod(sizes[i + 1 :]) for i in range(x.rank)]
    places = np.indices([dim or 0 for dim in indices.shape])
    others = sum(places[i] * steps[i] for i in range(x.rank) if i != axis)
    offsets = np.broadcast_to(np.asarray(others, np.int32), places.shape[1:]).reshape(-1)
    known = indices.constant
    row = tfl.value(flatten(tfl, indices)) if known is None else constant(known.reshape(-1))
    along = Integers(tfl, tfl.cast(_wrap_indices(node, tfl, row, axis), np.int32))
    return (along * steps[axis] + offsets).tensor


def _open_positions(tfl: TflBuilder, node: TflNode, x: Value, indices: Value, axis: int) -> Tensor:
    """Return flat_positions with sizes read at run time: the positions along each axis, broadcast together."""
    own, wanted = (Integers(tfl, tfl.run_time_shape(value)) for value in (x, indices))
    along = Integers(tfl, tfl.cast(_wrap_indices(node, tfl, indices, axis), np.int32))
    step, total = Integers(tfl, tfl.int32(1)), Integers(tfl, tfl.int32(0))
    for place in reversed(range(x.rank)):
        if place == axis:
            total = total + along * step
        else:
            row = Integers(tfl, _positions_along(tfl, wanted, indices, place, x.rank))
            total = total + row * step
        step = step * own.element(place)
    return flatten(tfl, tfl.value(total.tensor))


def _positions_along(tfl: TflBuilder, sizes: Integers, indices: Value, axis: int, rank: int) -> Tensor:
    """Return 0, 1, ... along an axis of the indices, in a shape that broadcasts with `rank` axes."""
    limits = [tfl.int32(0), sizes.element(axis).tensor, tfl.int32(1)]
    row = tfl.op("range", limits, (indices.shape[axis],))
    return tfl.reshape(row, [1] * axis + [indices.shape[axis]] + [1] * (rank - axis - 1))


@lower("GatherND")
def gather_nd(node: TflNode, tfl: TflBuilder) -> None:
    """Pick slices by tuples of indices, after `batch_dims` axes that both operands share (ONNX GatherND-13)."""
    x, indices, batch = node.input(0), node.input(1), node.attribute("batch_dims", 0)
    if indices.shape[-1] is None:
        node.unsupported("indices of an open depth; fix the inputs' sizes with --shape NAME=...")
    tuples = wrap_tuples(node, tfl, batch)
    if batch:
        # TFLite's has no batch axes: the positions along them become further indices.
        own = _batch_places(tfl, indices, batch)
        leading = indices.shape[:-1]
        shape = (*leading, batch + indices.shape[-1])
        tuples = tfl.op("concatenation", [*own, tuples], shape, axis=len(leading))
    result = (*indices.shape[:-1], *x.shape[batch + indices.shape[-1] :])
    node.emit(tfl.value(tfl.op("gather_nd", [tfl.tensor(x), tuples], result)))


def _batch_places(tfl: TflBuilder, indices: Value, batch: int) -> list[Tensor]:
    """Return the positions of each tuple of indices along the first `batch` axes."""
    if None not in indices.shape:
        leading = [dim or 0 for dim in indices.shape[:-1]]
        return [tfl.int32(np.moveaxis(np.indices(leading)[:batch], 0, -1))]
    rank = indices.rank
    sizes = Integers(tfl, tfl.run_time_shape(indices))
    columns = tfl.concatenate([tfl.slice(sizes.tensor, [0], [rank - 1]), tfl.int32([1])])
    places = []
    for axis in range(batch):
        row = _positions_along(tfl, sizes, indices, axis, rank)
        places.append(tfl.op("broadcast_to", [row, columns], (*indices.shape[:-1], 1)))
    return places


def wrap_tuples(node: TflNode, tfl: TflBuilder, batch: int = 0) -> Tensor:
    """Return input 1's tuples of indices into x's axes from `batch` on, int32, negative ones made positive."""
    x, indices = node.input(0), node.input(1)
    depth = indices.shape[-1] or 0
    sizes = x.shape[batch : batch + depth]
    if indices.constant is not None:
        positions, limits = indices.constant, check_indices(node, indices.constant, sizes)
        if None not in sizes or (positions >= 0).all():
            return tfl.int32(np.where(positions < 0, positions + limits, positions))
    if None in sizes:
        lengths = tfl.value(tfl.slice(tfl.sizes(tfl.tensor(x)), [batch], [depth]))
    else:
        lengths = constant(np.array(sizes, np.int32))
    return tfl.tensor(add_to_negative(tfl, tfl.convert(indices, np.int32), lengths))


@lower("NonZero")
def non_zero(node: TflNode, tfl: TflBuilder) -> None:
    """The coordinates of all elements other than 0, one row per axis (ONNX NonZero-13)."""
    rank = node.x.rank
    if rank == 0:
        node.unsupported("a scalar")
    found = tfl.op("where", [tfl.tensor(node.x)], (None, rank), np.int64)
    node.emit(tfl.value(tfl.op("transpose", [found, tfl.int32([1, 0])], (rank, None))))


@lower("Compress")
def compress(node: TflNode, tfl: TflBuilder) -> None:
    """The slices along an axis for which the condition holds (ONNX Compress-11)."""
    x, condition = node.input(0), node.input(1)
    axis = node.attribute("axis", None)
    if axis is None:
        x, axis = tfl.value(flatten(tfl, x)), 0
    axis = normalize_axis(axis, x.rank)
    places = tfl.reshape(tfl.op("where", [tfl.tensor(condition)], (None, 1), np.int64), (None,))
    shape = (*x.shape[:axis], None, *x.shape[axis + 1 :])
    node.emit(tfl.value(tfl.gather(tfl.tensor(x), places, axis, shape)))
