"""Ops that pick elements by position: Slice and Gather."""

from __future__ import annotations

import numpy as np

from onnxport.converters.tflite.builder import TflBuilder, TflNode, constant_of, optional_constant
from onnxport.converters.tflite.layout import normalized, permuted
from onnxport.converters.tflite.registry import lower

_INT32_MAX = np.iinfo(np.int32).max


@lower("Slice")
def slice_(node: TflNode, tfl: TflBuilder) -> None:
    """NumPy's slice with steps along some axes (ONNX Slice-13); bounds beyond the end are clamped."""
    x = node.x
    starts, ends = (constant_of(node, i, name).tolist() for i, name in ((1, "starts"), (2, "ends")))
    axes = optional_constant(node, 3, "axes")
    steps = optional_constant(node, 4, "steps")
    targets = list(range(len(starts))) if axes is None else [normalized(int(a), x.rank) for a in axes]
    strides = [1] * len(starts) if steps is None else steps.tolist()
    begin, end, stride = [0] * x.rank, [_INT32_MAX] * x.rank, [1] * x.rank
    begin_mask = end_mask = 0
    shape = list(node.output_shape())
    order = tfl.common_order(x)
    for axis, first, last, step in zip(targets, starts, ends, strides, strict=True):
        if step < 0:
            node.unsupported(f"step {step}; TFLite slices forwards")
        i, dim = order.index(axis), x.shape[axis]
        if dim is None:
            begin[i], end[i] = first, min(last, _INT32_MAX)
        else:
            begin[i], end[i], _ = slice(first, last, step).indices(dim)
        stride[i] = step
    for i in range(x.rank):
        if end[i] == _INT32_MAX:
            end_mask |= 1 << i
    result = tfl.op(
        "strided_slice",
        [tfl.tensor(x, order), tfl.int32(begin), tfl.int32(end), tfl.int32(stride)],
        permuted(shape, order),
        x.dtype,
        begin_mask=begin_mask,
        end_mask=end_mask,
        ellipsis_mask=0,
        new_axis_mask=0,
        shrink_axis_mask=0,
        offset=False,
    )
    node.emit(tfl.computed(result, x.dtype, order))


@lower("Gather")
def gather(node: TflNode, tfl: TflBuilder) -> None:
    """Picks slices along an axis by index (ONNX Gather-13); a negative index counts from the end."""
    x, indices = node.input(0), node.input(1)
    axis = normalized(node.attribute("axis", 0), x.rank)
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    length = x.shape[axis]
    if indices.constant is not None:
        positions = indices.constant
        if (positions < 0).any():
            if length is None:
                node.unsupported("a negative index into an open dimension")
            positions = np.where(positions < 0, positions + length, positions)
        picked = tfl.int32(positions)
    else:
        picked = _non_negative(node, tfl, length)
    result = tfl.op("gather", [tfl.tensor(x), picked], shape, x.dtype, axis=axis, batch_dims=0)
    node.emit(tfl.computed(result, x.dtype))


def _non_negative(node: TflNode, tfl: TflBuilder, length: int | None):  # type: ignore[no-untyped-def]
    """Run-time indices with `length` added to the negative ones: TFLite reads out of bounds there."""
    indices = node.input(1)
    if length is None:
        node.unsupported("run-time indices into an open dimension, of which some could be negative")
    tensor, shape = tfl.tensor(indices), indices.shape
    zero, size = (tfl.constant(np.array(v, indices.dtype)) for v in (0, length))
    is_negative = tfl.op("less", [tensor, zero], shape, np.bool_)
    wrapped = tfl.binary("add", tensor, size, shape)
    return tfl.op("select_v2", [is_negative, wrapped, tensor], shape, indices.dtype)
