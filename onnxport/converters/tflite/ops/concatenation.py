"""Ops that join or repeat tensors: Concat, Expand, Tile."""

from __future__ import annotations

import numpy as np

from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.layout import identity, normalize_axis, permute
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value


@lower("Concat")
def concat(node: TflNode, tfl: TflBuilder) -> None:
    """Join values along an axis (ONNX Concat-13)."""
    values = node.rest()
    axis = normalize_axis(node.attribute("axis"), values[0].rank)
    order = tfl.common_order(*values)
    sizes = [value.shape[axis] for value in values]
    shape = list(node.output_shape())
    shape[axis] = None if None in sizes else sum(size for size in sizes if size is not None)
    tensors = [tfl.tensor(value, order) for value in values]
    result = tfl.op("concatenation", tensors, permute(shape, order), axis=order.index(axis))
    node.emit(tfl.value(result, order))


@lower("Expand")
def expand(node: TflNode, tfl: TflBuilder) -> None:
    """Broadcast to a shape (ONNX Expand-13)."""
    x, wanted = node.input(0), node.input(1)
    shape = node.output_shape()
    if None in shape:
        target = _expand_target(tfl, x, wanted, len(shape))
    elif x.shape == shape:
        node.emit(x)
        return
    else:
        target = tfl.int32([dim or 0 for dim in shape])
    operand = tfl.operand(x, identity(len(shape)))
    node.emit(tfl.value(tfl.op("broadcast_to", [operand, target], shape)))


def _expand_target(tfl: TflBuilder, x: Value, wanted: Value, rank: int) -> Tensor:
    """Return the larger of both shapes, computed at run time: ONNX broadcasts both ways, TFLite one way."""
    own = _add_leading_ones(tfl, tfl.run_time_shape(x), rank - x.rank)
    target = tfl.tensor(tfl.convert(wanted, np.int32))
    target = _add_leading_ones(tfl, target, rank - (wanted.shape[0] or 0))
    # Sizes differ only where one of them is 1, or 0 where one is 0.
    is_one = tfl.op("equal", [own, tfl.int32(1)], [rank], bool)
    return tfl.op("select_v2", [is_one, target, own], [rank])


def _add_leading_ones(tfl: TflBuilder, sizes: Tensor, count: int) -> Tensor:
    if not count:
        return sizes
    rank = count + (tfl.shape_of(sizes)[0] or 0)
    return tfl.op("concatenation", [tfl.int32([1] * count), sizes], [rank], axis=0)


@lower("Tile")
def tile(node: TflNode, tfl: TflBuilder) -> None:
    """Repeat a tensor along each axis (ONNX Tile-13)."""
    x, repeats = node.input(0), node.input(1)
    shape, order = node.output_shape(), identity(x.rank)
    if repeats.constant is None:
        counts = tfl.tensor(tfl.convert(repeats, np.int32))
    else:
        times, order = repeats.constant.tolist(), tfl.common_order(x)
        shape = tuple(None if dim is None else dim * n for dim, n in zip(x.shape, times, strict=True))
        counts = tfl.int32([times[axis] for axis in order])
    node.emit(tfl.value(tfl.op("tile", [tfl.tensor(x, order), counts], permute(shape, order)), order))
