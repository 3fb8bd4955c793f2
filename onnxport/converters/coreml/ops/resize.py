"""Resize: by MIL's own operators where these sample the very same, by gathering or by a matrix elsewhere."""

from __future__ import annotations

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder, MilNode
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.resize import is_last, resize_at_run_time, resize_linearly
from onnxport.converters.coreml.values import Value
from onnxport.converters.resize.sampling import (
    Axis,
    Sampling,
    is_alike,
    is_open,
    nearest_indices,
    outside_mask,
    read_axes,
    read_sampling,
    refuse_rounding,
    weight_matrix,
)
from onnxport.core.arrays import Array

# MIL's sampling_mode -> where it samples an axis of `before` elements for one of `after`.
_POSITIONS = {
    "UNALIGN_CORNERS": lambda before, after: (np.arange(after) + 0.5) * before / after - 0.5,
    "STRICT_ALIGN_CORNERS": lambda before, after: np.arange(after) * (before - 1) / (after - 1),
    "DEFAULT": lambda before, after: np.arange(after) * (before - before / after) / (after - 1),
}


@lower("Resize")
def resize(node: MilNode, mil: MilBuilder) -> None:
    """Resample axes (ONNX Resize-19)."""
    x, shape, sampling = node.x, node.output_shape(), read_sampling(node)
    if sampling.mode != "nearest" and not x.is_float:
        refuse_rounding(node, sampling)
    if None in x.shape or None in shape or is_open(node, sampling):
        node.emit(resize_at_run_time(node, mil, sampling))
        return
    axes = read_axes(node, sampling)
    if not axes:
        node.emit(mil.identity(x=x))
        return
    native = _resize_natively(mil, x, sampling, axes)
    if native is not None:
        node.emit(native)
        return
    result = x
    for axis, description in axes.items():
        if sampling.mode == "nearest":
            indices = nearest_indices(sampling, description).astype(np.int32)
            result = mil.gather(x=result, indices=indices, axis=axis)
        else:
            result = _apply_weights(mil, result, axis, weight_matrix(sampling, description))
    node.emit(_extrapolate(mil, result, axes, sampling))


def _resize_natively(mil: MilBuilder, x: Value, sampling: Sampling, axes: dict[int, Axis]) -> Value | None:
    """Resize the last two axes by an operator that samples both as the node does, if there is one."""
    if x.rank < 3 or not x.is_float or not is_last(axes, x.rank):
        return None
    if sampling.coordinates == "tf_crop_and_resize":
        return None
    height, width = (
        axes.get(axis) or Axis(x.shape[axis] or 0, x.shape[axis] or 0, np.float32(1))
        for axis in (x.rank - 2, x.rank - 1)
    )
    if sampling.mode == "nearest":
        if not all(_is_repetition(sampling, axis) for axis in (height, width)):
            return None
        return mil.upsample_nearest_neighbor(
            x=x,
            scale_factor_height=height.after // height.before,
            scale_factor_width=width.after // width.before,
        )
    shrinks = sampling.antialias and any(axis.scale < 1 for axis in axes.values())
    if sampling.mode == "cubic" or shrinks or sampling.exclude_outside:
        return None
    for mode in _POSITIONS:
        if all(_is_alike(sampling, mode, axis) for axis in (height, width)):
            return resize_linearly(mil, x, mode, [height.after, width.after])
    return None


def _is_repetition(sampling: Sampling, axis: Axis) -> bool:
    """Return whether every element is copied equally often."""
    if axis.after % axis.before:
        return False
    repeated = np.repeat(np.arange(axis.before), axis.after // axis.before)
    return bool(np.array_equal(nearest_indices(sampling, axis), repeated))


def _is_alike(sampling: Sampling, mode: str, axis: Axis) -> bool:
    """Return whether MIL samples the axis as the node does, to float32 noise in a position."""
    if axis.before == axis.after and axis.scale == 1:
        return axis.after > 1 or mode == "UNALIGN_CORNERS"
    if axis.after == 1 and mode != "UNALIGN_CORNERS":
        return False
    return is_alike(sampling, axis, _POSITIONS[mode](axis.before, axis.after))


# ---- any sampling


def _apply_weights(mil: MilBuilder, x: Value, axis: int, matrix: Array) -> Value:
    """Multiply the axis by a matrix [after, before]."""
    weights = mil.constant(matrix.astype(np.float32))
    if x.rank > 1 and axis == x.rank - 2:
        return mil.matmul(x=weights, y=x)
    order = [each for each in range(x.rank) if each != axis] + [axis]
    last = axis == x.rank - 1
    rows = x if last else mil.transpose(x=x, perm=order)
    if x.rank == 1:
        rows = mil.expand_dims(x=rows, axes=[0])
    result = mil.matmul(x=rows, y=weights, transpose_y=True)
    if x.rank == 1:
        return mil.squeeze(x=result, axes=[0])
    return result if last else mil.transpose(x=result, perm=np.argsort(order).tolist())


def _extrapolate(mil: MilBuilder, result: Value, axes: dict[int, Axis], sampling: Sampling) -> Value:
    """Replace the samples outside the input by the extrapolation value."""
    lies_outside = outside_mask(sampling, axes, result.rank)
    if not lies_outside.any():
        return result
    whole = np.broadcast_to(lies_outside, [dim or 0 for dim in result.shape])
    fill = float(sampling.extrapolation) if result.is_float else int(sampling.extrapolation)
    return mil.select(cond=np.ascontiguousarray(whole), a=fill, b=result)
