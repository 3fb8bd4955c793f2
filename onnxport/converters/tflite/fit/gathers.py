"""Gathers and scatters as GATHER with indices of one axis."""

from __future__ import annotations

from math import prod

import numpy as np

from onnxport.converters.tflite.fit.axes import around, permute, reshape
from onnxport.converters.tflite.fit.movement import require
from onnxport.converters.tflite.fit.operation import Sizes, TflOp, elements, sizes
from onnxport.converters.tflite.tensors import Tensor, TensorBuilder


def gather(op: TflOp) -> Tensor:
    """Gather by flat indices; along an axis of many it is the second of three."""
    tfl, indices = op.tfl, op.operands[1]
    axis = op.attribute("axis") % len(op.shape)
    flat = around(op.shape, axis)[1:]
    if len(op.shape) > 4:
        result = _gather_flat(tfl, reshape(tfl, op.x, flat), indices, 1)
    else:
        result = _gather_flat(tfl, op.x, indices, axis)
    return reshape(tfl, result, op.out)


def _gather_flat(tfl: TensorBuilder, data: Tensor, indices: Tensor, axis: int) -> Tensor:
    shape, count = sizes(data), prod(sizes(indices))
    flat = reshape(tfl, indices, (count,))
    if count == 1 and (place := elements(flat)) is not None:
        begin, size = [0] * len(shape), list(shape)
        begin[axis], size[axis] = int(place.item()) % shape[axis], 1
        return tfl.slice(data, begin, size)
    result = (*shape[:axis], count, *shape[axis + 1 :])
    return tfl.op("gather", [data, flat], result, axis=axis, batch_dims=0)


def gather_nd(op: TflOp) -> Tensor:
    """Gather rows by the index that a tuple gives in row-major order."""
    tfl, indices = op.tfl, op.operands[1]
    depth = sizes(indices)[-1]
    rows = _row_numbers(tfl, indices, op.shape[:depth])
    data = reshape(tfl, op.x, (prod(op.shape[:depth]), prod(op.shape[depth:])))
    return reshape(tfl, _gather_flat(tfl, data, rows, 0), op.out)


def _row_numbers(tfl: TensorBuilder, indices: Tensor, shape: Sizes) -> Tensor:
    """Return the row-major number of each tuple of indices, [count]."""
    depth, count = len(shape), prod(sizes(indices)[:-1])
    strides = [prod(shape[axis + 1 :]) for axis in range(depth)]
    tuples = reshape(tfl, indices, (count, depth))
    known = elements(tuples)
    if known is not None:
        return tfl.int32((known.astype(np.int64) * strides).sum(axis=1))
    total: Tensor | None = None
    for axis, stride in enumerate(strides):
        column = reshape(tfl, tfl.slice(tuples, [0, axis], [count, 1]), (count,))
        part = column if stride == 1 else tfl.op("mul", [column, tfl.int32(stride)], (count,))
        total = part if total is None else _add(tfl, total, part)
    assert total is not None
    return total


def _add(tfl: TensorBuilder, left: Tensor, right: Tensor) -> Tensor:
    known = elements(left), elements(right)
    if known[0] is not None and known[1] is not None:
        return tfl.int32(known[0] + known[1])
    return tfl.op("add", [left, right], sizes(left))


def scatters_constantly(op: TflOp) -> bool:
    """Return whether SCATTER_ND writes to constant places, none of them twice."""
    indices = op.constant(0)
    if indices is None or op.constant(2) is None:
        return False
    tuples = indices.reshape(-1, indices.shape[-1])
    return len(np.unique(tuples, axis=0)) == len(tuples)


def scatter_nd(op: TflOp) -> Tensor:
    """Gather from the updates and a row of zeros behind them."""
    tfl, indices, updates = op.tfl, require(op, 0), op.operands[1]
    depth = indices.shape[-1]
    count, width = prod(indices.shape[:-1]), prod(op.out[depth:])
    places = np.full(prod(op.out[:depth]), count)  # the row of zeros
    strides = [prod(op.out[axis + 1 : depth]) for axis in range(depth)]
    places[(indices.reshape(-1, depth).astype(np.int64) * strides).sum(axis=1)] = np.arange(count)
    rows = reshape(tfl, updates, (count, width))
    zeros = tfl.constant(np.zeros((1, width), op.dtype))
    source = tfl.concatenate([rows, zeros], 0)
    return reshape(tfl, _gather_flat(tfl, source, tfl.int32(places), 0), op.out)


def one_hot_of_floats(op: TflOp) -> Tensor:
    """Emit ONE_HOT of float32, the only numbers that the GPU gives there, and CAST."""
    tfl = op.tfl
    numbers = [tfl.constant(require(op, place), np.float32) for place in (2, 3)]
    found = tfl.op("one_hot", [*op.operands[:2], *numbers], op.out, np.float32, **op.attributes())
    return tfl.op("cast", [found], op.out, op.dtype)


def one_hot(op: TflOp) -> Tensor:
    """Emit ONE_HOT along the last axis of two, and TRANSPOSE."""
    tfl, depth, count = op.tfl, int(require(op, 1)), prod(op.shape)
    flat = [reshape(tfl, op.x, (count,)), *op.operands[1:]]
    found = tfl.op("one_hot", flat, (count, depth), op.dtype, axis=-1)
    axis, rank = op.attribute("axis") % len(op.out), len(op.out)
    last = reshape(tfl, found, (*op.shape, depth))
    return permute(tfl, last, (*range(axis), rank - 1, *range(axis, rank - 1)))
