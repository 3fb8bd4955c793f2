"""Convolutions: channels last, weights rearranged (at conversion if constant), bias always present for the kernels."""

from __future__ import annotations

import numpy as np

from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.ops.windows import (
    from_images,
    images,
    output_sizes,
    pad_input,
    split_channels,
    tflite_padding,
)
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value, constant, with_unit_axis
from onnxport.converters.windows import Window, check_axes, known_kernel, read_window


@lower("Conv")
def conv(node: TflNode, tfl: TflBuilder) -> None:
    """Grouped, dilated, padded 1-D to 3-D convolution (ONNX Conv-22)."""
    x, weights = node.input(0), as_weights(node.input(1), 0)
    check_axes(node, "TFLite convolves")
    groups = node.attribute("group", 1)
    window = read_window(node, x.shape[2:], known_kernel(node, weights.shape))
    if x.rank == 3:
        window = window.with_unit_axis()
    tensor = images(tfl, x)
    padding = tflite_padding(window)
    if padding is None:
        tensor, window, padding = pad_input(tfl, tensor, window), window.padded(), "VALID"
    make = _conv_3d if x.rank == 5 else _conv_2d
    bias = tfl.tensor(node.input(2)) if node.has_input(2) else None
    if bias is None:
        bias = tfl.constant(np.zeros(weights.shape[0] or 0), x.dtype)
    result = make(tfl, tensor, weights, bias, window, padding, groups)
    node.emit(from_images(tfl, result, x.rank))


def as_weights(value: Value, channels: int) -> Value:
    """Return a convolution's weights, quantized if the kernels take them so: by output channel, axis `channels`."""
    quantized = value.quantized
    if quantized is None or (quantized.is_weights and quantized.grid.axis in (None, channels)):
        return value
    assert value.constant is not None
    return constant(value.constant)


def _filters(tfl: TflBuilder, weights: Value, order: tuple[int, ...]) -> Tensor:
    """Return the weights with their axes in `order`, counted as if 1-D ones had a height of 1 at axis 2."""
    if weights.rank == 3 and len(order) == 4:
        if weights.constant is not None:
            return tfl.tensor(with_unit_axis(weights, 2), order)
        tensor = tfl.tensor(weights, tuple(axis - (axis == 3) for axis in order if axis != 2))
        return tfl.with_unit_axis(tensor, order.index(2))
    return tfl.tensor(weights, order)


def _conv_2d(
    tfl: TflBuilder, tensor: Tensor, weights: Value, bias: Tensor, window: Window, padding: str, groups: int
) -> Tensor:
    channels = weights.shape[0] or 0
    shape = [tfl.shape_of(tensor)[0], *output_sizes(window, padding), channels]
    attributes = {"padding": padding, **_steps(window, "hw")}
    if groups > 1 and weights.shape[1] == 1:
        # Depthwise filters lie as [1, H, W, channels out]; output channel o reads input channel o // multiplier.
        operands = [tensor, _filters(tfl, weights, (1, 2, 3, 0)), bias]
        return tfl.op("depthwise_conv_2d", operands, shape, depth_multiplier=channels // groups, **attributes)
    return tfl.op("conv_2d", [tensor, _filters(tfl, weights, (0, 2, 3, 1)), bias], shape, **attributes)


def _conv_3d(
    tfl: TflBuilder, tensor: Tensor, weights: Value, bias: Tensor, window: Window, padding: str, groups: int
) -> Tensor:
    shape = [tfl.shape_of(tensor)[0], *output_sizes(window, padding), (weights.shape[0] or 0) // groups]
    operands = (tensor, _filters(tfl, weights, (2, 3, 4, 1, 0)), bias)
    # TFLite's has no groups.
    parts = [
        tfl.op("conv_3d", list(each), shape, padding=padding, **_steps(window, "dhw"))
        for each in zip(*(split_channels(tfl, operand, groups) for operand in operands), strict=True)
    ]
    return tfl.concatenate(parts, 4)


def _steps(window: Window, axes: str) -> dict[str, int]:
    """Return TFLite's attributes for the strides and dilations."""
    strides = {f"stride_{axis}": stride for axis, stride in zip(axes, window.strides, strict=True)}
    dilations = zip(axes, window.dilations, strict=True)
    return strides | {f"dilation_{axis}_factor": dilation for axis, dilation in dilations}
