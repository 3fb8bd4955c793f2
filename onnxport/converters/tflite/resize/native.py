"""TFLite's own resizing ops and their sampling, and gathers."""

from __future__ import annotations

import numpy as np

from onnxport.converters.resize.sampling import HALF, Axis, Sampling, is_alike, nearest_indices
from onnxport.converters.tflite.builder import TflBuilder
from onnxport.converters.tflite.layout import channels_last, permute
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value
from onnxport.core.arrays import Array

# (align_corners, half_pixel_centers) of RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR.
Native = tuple[bool, bool]
NATIVE: tuple[Native, ...] = ((False, False), (False, True), (True, False))


def native_scale(native: Native, before: int, after: int) -> np.float32:
    align_corners, _ = native
    if align_corners and after > 1:
        return np.float32(before - 1) / np.float32(after - 1)
    return np.float32(before) / np.float32(after)


def native_indices(native: Native, before: int, after: int) -> Array:
    """Return the element that RESIZE_NEAREST_NEIGHBOR copies (kernels/internal/reference/resize_nearest_neighbor.h)."""
    align_corners, half_pixel = native
    shift, scale = HALF if half_pixel else 0, native_scale(native, before, after)
    x = (np.arange(after, dtype=np.float32) + shift) * scale
    rounded = np.floor(x + HALF) if align_corners else np.floor(x)
    return np.asarray(np.clip(rounded.astype(np.int64), 0, before - 1))


def native_positions(native: Native, before: int, after: int) -> Array:
    """Return the positions that RESIZE_BILINEAR samples (kernels/internal/reference/resize_bilinear.h)."""
    y, scale = np.arange(after, dtype=np.float32), native_scale(native, before, after)
    return (y + HALF) * scale - HALF if native[1] else y * scale


def samples_as(sampling: Sampling, native: Native, axis: Axis) -> bool:
    """Return whether TFLite's op samples the axis as the node does, to float32 noise in a position."""
    if sampling.mode == "nearest":
        ours = native_indices(native, axis.before, axis.after)
        return bool(np.array_equal(ours, nearest_indices(sampling, axis)))
    if sampling.mode == "cubic" or (sampling.antialias and axis.scale < 1):
        return False
    return is_alike(sampling, axis, native_positions(native, axis.before, axis.after))


def resize_natively(
    tfl: TflBuilder, x: Value, mode: str, native: Native, sizes: Tensor, shape: tuple[int | None, ...]
) -> Value:
    """Resize the last two of four axes to `sizes` by TFLite's own op."""
    order = channels_last(4)
    name = {"linear": "resize_bilinear", "nearest": "resize_nearest_neighbor"}[mode]
    flags = {"align_corners": native[0], "half_pixel_centers": native[1]}
    result = tfl.op(name, [tfl.tensor(x, order), sizes], permute(shape, order), **flags)
    return tfl.value(result, order)


def gather_axis(tfl: TflBuilder, x: Value, axis: int, indices: Tensor) -> Value:
    """Return the elements at `indices` of a logical axis."""
    order = tfl.common_order(x)
    place = order.index(axis)
    shape = list(permute(x.shape, order))
    shape[place] = tfl.shape_of(indices)[0]
    return tfl.value(tfl.gather(tfl.tensor(x, order), indices, place, shape), order)
