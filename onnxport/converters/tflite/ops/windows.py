"""Sliding windows on channels-last tensors: padding schemes, ranks."""

from __future__ import annotations

from typing import Literal

from onnxport.converters.tflite.builder import TflBuilder
from onnxport.converters.tflite.layout import channels_last
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value
from onnxport.converters.windows import Window


def tflite_padding(window: Window) -> Literal["SAME", "VALID"] | None:
    """Return the TFLite padding scheme with these very amounts, or None if explicit padding is needed."""
    if window.same:
        return "SAME"
    if not any(window.before) and not any(window.after):
        return "VALID"
    return "SAME" if window.is_tensorflows_same() else None


def pad_input(tfl: TflBuilder, tensor: Tensor, window: Window, fill: float | None = None) -> Tensor:
    """Write the window's padding into a channels-last tensor [N, spatial..., C]."""
    return tfl.pad(tensor, (0, *window.before, 0), (0, *window.after, 0), fill)


def images(tfl: TflBuilder, x: Value) -> Tensor:
    """Return `x` for TFLite's 2-D or 3-D image ops: [N, H, W, C]; [N, C, L] becomes [N, 1, L, C]."""
    tensor = tfl.tensor(x, channels_last(x.rank))
    return tfl.with_unit_axis(tensor, 1) if x.rank == 3 else tensor


def from_images(tfl: TflBuilder, tensor: Tensor, rank: int) -> Value:
    """Return the ONNX value of `rank` behind an image op's result."""
    if rank == 3:
        tensor = tfl.without_unit_axis(tensor, 1)
    return tfl.value(tensor, channels_last(rank))


def output_sizes(window: Window, padding: str) -> tuple[int | None, ...]:
    """Return the spatial sizes of the result under a TFLite padding scheme."""
    if padding != "SAME":
        return window.output
    return tuple(
        None if size is None else -(-size // stride)
        for size, stride in zip(window.input, window.strides, strict=True)
    )


def split_channels(tfl: TflBuilder, tensor: Tensor, groups: int) -> list[Tensor]:
    """Split the last axis into `groups` equal parts."""
    if groups == 1:
        return [tensor]
    *leading, channels = tfl.shape_of(tensor)
    each = (channels or 0) // groups
    first = [0] * len(leading)
    return [tfl.slice(tensor, [*first, i * each], [*leading, each]) for i in range(groups)]


def spatial_sizes(tfl: TflBuilder, tensor: Tensor) -> Tensor:
    """Return the sizes of a channels-last tensor's spatial axes at run time, int32."""
    rank = len(tfl.shape_of(tensor))
    return tfl.slice(tfl.sizes(tensor), [1], [rank - 2])
