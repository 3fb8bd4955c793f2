"""ConvTranspose: TFLite's full result, cropped by ONNX's pads."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.ops.convolution import as_weights
from onnxport.converters.tflite.ops.windows import from_images, images, spatial_sizes, split_channels
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value, constant, with_unit_axis
from onnxport.converters.windows import Transposed, check_axes, known_kernel, read_transposed_window


@lower("ConvTranspose")
def conv_transpose(node: TflNode, tfl: TflBuilder) -> None:
    """Transposed, grouped, dilated convolution over one to three axes (ONNX ConvTranspose-22)."""
    x = node.input(0)
    weights = as_weights(node.input(1), 1)  # [channels in, channels out / groups, spatial...]
    check_axes(node, "TFLite convolves")
    groups = node.attribute("group", 1)
    if x.shape[1] is None:
        node.unsupported("has an open number of channels; fix it with --shape NAME=...")
    shape = read_transposed_window(node, known_kernel(node, weights.shape))
    weights = _dilate(tfl, weights, shape.window.dilations)
    if x.rank == 3:
        shape, known = shape.with_unit_axis(), weights.constant is not None
        weights = (
            with_unit_axis(weights, 2) if known else tfl.value(tfl.with_unit_axis(tfl.tensor(weights), 2))
        )
    bias = tfl.tensor(node.input(2)) if node.has_input(2) else None
    # The 3-D op's verifier demands as many biases as input channels.
    fused = groups == 1 and not any(shape.beyond) and x.rank < 5
    parts = [
        _full_result(tfl, image, part, shape, bias if fused else None)
        for image, part in zip(
            split_channels(tfl, images(tfl, x), groups), _weight_groups(tfl, weights, groups), strict=True
        )
    ]
    result = _crop(tfl, tfl.concatenate(parts, max(x.rank - 1, 3)), shape)
    if bias is not None and not fused:
        result = tfl.op("add", [result, bias], tfl.shape_of(result))
    node.emit(from_images(tfl, result, x.rank))


def _dilate(tfl: TflBuilder, weights: Value, dilations: Sequence[int]) -> Value:
    """Insert zeros between the weights' elements: TFLite's transposed convolution has no dilations."""
    if all(d == 1 for d in dilations):
        return weights
    if weights.constant is None:
        for axis, dilation in enumerate(dilations, start=2):
            weights = _dilate_axis(tfl, weights, axis, dilation)
        return weights
    spread = [(k - 1) * d + 1 for k, d in zip(weights.constant.shape[2:], dilations, strict=True)]
    wide = np.zeros((*weights.constant.shape[:2], *spread), weights.dtype)
    every: list[Any] = [..., *(slice(None, None, d) for d in dilations)]
    wide[tuple(every)] = weights.constant
    return constant(wide)


def _dilate_axis(tfl: TflBuilder, weights: Value, axis: int, dilation: int) -> Value:
    """Return the elements of an axis of run-time weights with `dilation` - 1 zeros between them."""
    sizes = [dim or 0 for dim in weights.shape]
    before, size, behind = prod(sizes[:axis]), sizes[axis], prod(sizes[axis + 1 :])
    apart = tfl.reshape(tfl.tensor(weights), (before, size, 1, behind))
    padded = tfl.pad(apart, (0, 0, 0, 0), (0, 0, dilation - 1, 0))
    filled = tfl.reshape(padded, (before, size * dilation, behind))
    spread = (size - 1) * dilation + 1
    kept = tfl.slice(filled, (0, 0, 0), (before, spread, behind))
    return tfl.value(tfl.reshape(kept, (*sizes[:axis], spread, *sizes[axis + 1 :])))


def _weight_groups(tfl: TflBuilder, weights: Value, groups: int) -> list[Tensor]:
    """Return each group's filters in TFLite's order: [out, H, W, in] or [D, H, W, out, in]."""
    order = (1, 2, 3, 0) if weights.rank == 4 else (2, 3, 4, 1, 0)
    if groups == 1:
        return [tfl.tensor(weights, order)]
    if weights.constant is None:
        return split_channels(tfl, tfl.tensor(weights, order), groups)
    parts = np.split(weights.constant, groups)
    return [tfl.constant(np.transpose(part, order)) for part in parts]


def _full_result(
    tfl: TflBuilder, tensor: Tensor, filters: Tensor, shape: Transposed, bias: Tensor | None
) -> Tensor:
    """Return the transposed convolution without any padding."""
    spatial = len(shape.window.kernel)
    channels = tfl.shape_of(filters)[0 if spatial == 2 else 3]
    result = (tfl.shape_of(tensor)[0], *shape.full, channels)
    sizes = _run_time_shape(tfl, tensor, shape, result)
    named = zip("dhw"[-spatial:], shape.window.strides, strict=True)
    strides = {f"stride_{axis}": stride for axis, stride in named}
    if spatial == 2:
        if bias is None:
            bias = tfl.constant(np.zeros(channels or 0), tfl.dtype_of(tensor))
        return tfl.op("transpose_conv", [sizes, filters, tensor, bias], result, padding="VALID", **strides)
    undilated = {f"dilation_{axis}_factor": 1 for axis in "dhw"}
    operands = [sizes, filters, tensor, tfl.no_value()]
    return tfl.op("conv_3d_transpose", operands, result, padding="VALID", **strides, **undilated)


def _run_time_shape(
    tfl: TflBuilder, tensor: Tensor, shape: Transposed, result: Sequence[int | None]
) -> Tensor:
    """Return the output shape operand; open sizes are computed from the input's at run time."""
    if None not in result:
        return tfl.int32([dim or 0 for dim in result])
    rank, window = len(result), shape.window
    actual = tfl.sizes(tensor)
    scaled = tfl.op("mul", [spatial_sizes(tfl, tensor), tfl.int32(window.strides)], [rank - 2])
    ends = [extent - stride for extent, stride in zip(window.extent, window.strides, strict=True)]
    full = tfl.op("add", [scaled, tfl.int32(ends)], [rank - 2])
    parts = [tfl.slice(actual, [0], [1]), full, tfl.int32([result[-1] or 0])]
    return tfl.concatenate(parts)


def _crop(tfl: TflBuilder, result: Tensor, shape: Transposed) -> Tensor:
    """Crop the full result by ONNX's pads, and extend it by output_padding."""
    result = tfl.pad(result, (0, *(0 for _ in shape.beyond), 0), (0, *shape.beyond, 0))
    before, excess = shape.window.before, shape.excess
    if not any(before) and not any(excess):
        return result
    batch, *sizes, channels = tfl.shape_of(result)
    kept = [None if size is None else size - b - a for size, b, a in zip(sizes, before, excess, strict=True)]
    return tfl.crop(result, [0, *before, 0], [0, *excess, 0], [batch, *kept, channels])
