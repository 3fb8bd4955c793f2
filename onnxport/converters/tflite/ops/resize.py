"""Resize: by TFLite's own resizing op where it samples the very same, by gathering or by a matrix elsewhere."""

from __future__ import annotations

import numpy as np

from onnxport.converters.resize.sampling import (
    Axis,
    Sampling,
    is_open,
    nearest_indices,
    outside_mask,
    read_axes,
    read_sampling,
    refuse_rounding,
    weight_matrix,
)
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.layout import Permutation, axis_last, permute
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.resize.native import NATIVE, Native, gather_axis, resize_natively, samples_as
from onnxport.converters.tflite.resize.open import resize_at_run_time
from onnxport.converters.tflite.values import Value, constant
from onnxport.core.arrays import Array


@lower("Resize")
def resize(node: TflNode, tfl: TflBuilder) -> None:
    """Resample axes (ONNX Resize-19)."""
    x, shape, sampling = node.x, node.output_shape(), read_sampling(node)
    if None in x.shape or None in shape or is_open(node, sampling):
        node.emit(resize_at_run_time(node, tfl, sampling))
        return
    axes = read_axes(node, sampling)
    if 0 in shape:
        node.emit(constant(np.zeros([dim or 0 for dim in shape], x.dtype)))
        return
    if not axes:
        node.emit(x)
        return
    if sampling.mode != "nearest" and x.dtype.kind != "f":
        refuse_rounding(node, sampling)
    is_image = x.rank == 4 and set(axes) <= {2, 3} and x.dtype.kind == "f"
    native = _native_for(sampling, axes) if is_image else None
    if native is not None:
        sizes = tfl.int32([dim or 0 for dim in shape[2:]])
        node.emit(resize_natively(tfl, x, sampling.mode, native, sizes, shape))
        return
    result = x
    for axis, description in axes.items():
        if sampling.mode == "nearest":
            result = gather_axis(tfl, result, axis, tfl.int32(nearest_indices(sampling, description)))
        else:
            result = _apply_weights(tfl, result, axis, weight_matrix(sampling, description))
    node.emit(_extrapolate(tfl, result, axes, sampling))


def _native_for(sampling: Sampling, axes: dict[int, Axis]) -> Native | None:
    """Return the TFLite op's parameters that sample every axis as the node does, if there are any."""
    if sampling.coordinates == "tf_crop_and_resize":
        return None
    each = axes.values()
    return next((n for n in NATIVE if all(samples_as(sampling, n, axis) for axis in each)), None)


# ---- any sampling


def _apply_weights(tfl: TflBuilder, x: Value, axis: int, matrix: Array) -> Value:
    """Multiply the axis by a matrix [after, before], as a fully connected layer."""
    order: Permutation = axis_last(x.rank, axis)
    *leading, _ = permute(x.shape, order)
    operands = [tfl.tensor(x, order), tfl.constant(matrix, x.dtype), tfl.no_value()]
    flags = {"keep_num_dims": x.rank > 2, "weights_format": "DEFAULT"}
    return tfl.value(tfl.op("fully_connected", operands, (*leading, len(matrix)), **flags), order)


def _extrapolate(tfl: TflBuilder, result: Value, axes: dict[int, Axis], sampling: Sampling) -> Value:
    """Replace the samples outside the input by the extrapolation value."""
    lies_outside = outside_mask(sampling, axes, result.rank)
    if not lies_outside.any():
        return result
    order = tfl.common_order(result)
    mask = tfl.constant(np.transpose(lies_outside, order))
    operands = [mask, tfl.constant(sampling.extrapolation, result.dtype), tfl.tensor(result, order)]
    return tfl.value(tfl.op("select_v2", operands, permute(result.shape, order)), order)
