"""Resizing of tensors: TFLite's own ops, and gathers."""

from __future__ import annotations

from onnxport.converters.tflite.builder import TflBuilder
from onnxport.converters.tflite.layout import channels_last, permuted
from onnxport.converters.tflite.resize.native import Native
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value


def resize_natively(
    tfl: TflBuilder, x: Value, mode: str, native: Native, sizes: Tensor, shape: tuple[int | None, ...]
) -> Value:
    """Resize the last two of four axes to `sizes` by TFLite's own op."""
    order = channels_last(4)
    result = tfl.op(
        {"linear": "resize_bilinear", "nearest": "resize_nearest_neighbor"}[mode],
        [tfl.tensor(x, order), sizes],
        permuted(shape, order),
        align_corners=native[0],
        half_pixel_centers=native[1],
    )
    return tfl.computed(result, order)


def gather_axis(tfl: TflBuilder, x: Value, axis: int, indices: Tensor) -> Value:
    """Return the elements at `indices` of a logical axis."""
    order = tfl.common_order(x)
    place = order.index(axis)
    shape = list(permuted(x.shape, order))
    shape[place] = tfl.shape_of(indices)[0]
    result = tfl.op("gather", [tfl.tensor(x, order), indices], shape, axis=place, batch_dims=0)
    return tfl.computed(result, order)
