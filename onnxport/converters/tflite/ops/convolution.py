"""Convolutions: channels last, weights rearranged at conversion, bias always present (the kernels need one)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onnxport.converters.tflite.builder import Array, Tensor, TflBuilder, TflNode, constant_of, optional_constant
from onnxport.converters.tflite.layout import channels_last
from onnxport.converters.tflite.ops.windows import Window, from_images, images, pad_input, window_of
from onnxport.converters.tflite.registry import lower


@lower("Conv")
def conv(node: TflNode, tfl: TflBuilder) -> None:
    """Grouped, dilated, padded 1-D to 3-D convolution (ONNX Conv-11)."""
    x = node.input(0)
    weights = constant_of(node, 1, "the weights")
    bias = _bias(node, weights.shape[0])
    groups = node.attribute("group", 1)
    node.attribute("kernel_shape", None)  # the weights say it
    window = window_of(node, x, weights.shape[2:])
    if x.rank == 3:
        window, weights = window.with_unit_axis(), weights[:, :, None, :]
    tensor = images(tfl, x)
    padding = window.tflite_padding()
    if padding is None:
        tensor, window, padding = pad_input(tfl, tensor, window), window.padded(), "VALID"
    if x.rank == 5:
        result = _conv_3d(node, tfl, tensor, weights, bias, window, padding, groups)
    else:
        result = _conv_2d(tfl, tensor, weights, bias, window, padding, groups, x.dtype)
    node.emit(from_images(tfl, result, x.rank, x))


def _bias(node: TflNode, channels: int) -> Array:
    bias = optional_constant(node, 2, "the bias")
    return np.zeros(channels, np.float32) if bias is None else bias


def _output_shape(tfl: TflBuilder, tensor: Tensor, window: Window, padding: str, channels: int) -> list[int | None]:
    sizes = window.output
    if padding == "SAME":
        sizes = tuple(
            None if size is None else -(-size // stride)
            for size, stride in zip(window.input, window.strides, strict=True)
        )
    return [tfl.shape_of(tensor)[0], *sizes, channels]


def _conv_2d(
    tfl: TflBuilder,
    tensor: Tensor,
    weights: Array,
    bias: Array,
    window: Window,
    padding: str,
    groups: int,
    dtype: np.dtype[np.generic],
) -> Tensor:
    channels = weights.shape[0]
    shape = _output_shape(tfl, tensor, window, padding, channels)
    attributes = {
        "padding": padding,
        "stride_h": window.strides[0],
        "stride_w": window.strides[1],
        "dilation_h_factor": window.dilations[0],
        "dilation_w_factor": window.dilations[1],
        "fused_activation_function": "NONE",
    }
    if groups > 1 and weights.shape[1] == 1:
        # Depthwise filters lie as [1, H, W, channels out]; output channel o reads input channel o // multiplier.
        filters = tfl.constant(weights.transpose(1, 2, 3, 0))
        return tfl.op(
            "depthwise_conv_2d",
            [tensor, filters, tfl.constant(bias)],
            shape,
            dtype,
            depth_multiplier=channels // groups,
            **attributes,
        )
    filters = tfl.constant(weights.transpose(0, 2, 3, 1))
    return tfl.op("conv_2d", [tensor, filters, tfl.constant(bias)], shape, dtype, **attributes)


def _conv_3d(
    node: TflNode,
    tfl: TflBuilder,
    tensor: Tensor,
    weights: Array,
    bias: Array,
    window: Window,
    padding: str,
    groups: int,
) -> Tensor:
    if groups != 1:
        node.unsupported("a grouped 3-D convolution; TFLite's CONV_3D has no groups")
    shape = _output_shape(tfl, tensor, window, padding, weights.shape[0])
    sizes = {
        f"{kind}{axis}{suffix}": values[i]
        for kind, suffix, values in (("stride_", "", window.strides), ("dilation_", "_factor", window.dilations))
        for i, axis in enumerate("dhw")
    }
    filters = tfl.constant(weights.transpose(2, 3, 4, 1, 0))
    return tfl.op(
        "conv_3d",
        [tensor, filters, tfl.constant(bias)],
        shape,
        np.float32,
        padding=padding,
        fused_activation_function="NONE",
        **sizes,
    )


@lower("ConvTranspose")
def conv_transpose(node: TflNode, tfl: TflBuilder) -> None:
    """Transposed convolution (ONNX ConvTranspose-11): the full result by TFLite, then ONNX's pads cut off."""
    x = node.input(0)
    weights = constant_of(node, 1, "the weights")  # [channels in, channels out, spatial...]
    bias = _bias(node, weights.shape[1])
    if node.attribute("group", 1) != 1:
        node.unsupported("groups; TFLite's TRANSPOSE_CONV has none")
    if x.rank not in (3, 4):
        node.unsupported("a 3-D transposed convolution")
    window, extra = _transposed_window(node, tuple(weights.shape[2:]))
    if x.rank == 3:
        window, extra, weights = window.with_unit_axis(), (0, *extra), weights[:, :, None, :]
    tensor = images(tfl, x)
    result = _transposed(node, tfl, tensor, weights, bias, window, extra)
    node.emit(from_images(tfl, result, x.rank, x))


def _transposed_window(node: TflNode, kernel: tuple[int, ...]) -> tuple[Window, tuple[int, ...]]:
    """The window and the output_padding, with auto_pad and output_shape resolved into pads."""
    x = node.x
    node.attribute("kernel_shape", None)
    extra = tuple(node.attribute("output_padding", (0,) * len(kernel)))
    wanted = node.attribute("output_shape", None)
    auto_pad = node.attribute("auto_pad", "NOTSET")
    strides = tuple(node.attribute("strides", (1,) * len(kernel)))
    dilations = tuple(node.attribute("dilations", (1,) * len(kernel)))
    if any(d != 1 for d in dilations):
        node.unsupported("dilations; TFLite's TRANSPOSE_CONV has none")
    pads = tuple(node.attribute("pads", (0,) * 2 * len(kernel)))
    spatial = tuple(x.shape[2:])
    window = Window(spatial, kernel, strides, dilations, pads[: len(kernel)], pads[len(kernel) :])
    if None in spatial:
        node.unsupported("an open spatial size; fix the input's size with --shape NAME=...")
    if wanted is None and auto_pad in ("NOTSET", "VALID"):
        return (window if auto_pad == "NOTSET" else replace(window, before=(0,) * len(kernel), after=(0,) * len(kernel))), extra
    full = [(size - 1) * s + k for size, s, k in zip(spatial, strides, kernel, strict=True) if size is not None]
    targets = wanted or [size * s for size, s in zip(spatial, strides, strict=True) if size is not None]
    totals = [f + e - t for f, e, t in zip(full, extra, targets[-len(kernel) :], strict=True)]
    if any(total < 0 for total in totals):
        node.unsupported("an output_shape larger than the full result")
    # ONNX ConvTranspose-11: SAME_UPPER puts the smaller half at the start, anything else at the end.
    halves = [(t // 2, t - t // 2) if auto_pad == "SAME_UPPER" else (t - t // 2, t // 2) for t in totals]
    return replace(window, before=tuple(b for b, _ in halves), after=tuple(a for _, a in halves)), extra


def _transposed(
    node: TflNode,
    tfl: TflBuilder,
    tensor: Tensor,
    weights: Array,
    bias: Array,
    window: Window,
    extra: tuple[int, ...],
) -> Tensor:
    batch = tfl.shape_of(tensor)[0]
    full = [
        (size - 1) * stride + kernel
        for size, stride, kernel in zip(window.input, window.strides, window.kernel, strict=True)
        if size is not None
    ]
    channels = weights.shape[1]
    shape = [batch, *full, channels]
    sizes = _runtime_sizes(tfl, tensor, shape)
    filters = tfl.constant(weights.transpose(1, 2, 3, 0))
    result = tfl.op(
        "transpose_conv",
        [sizes, filters, tensor, tfl.constant(bias)],
        shape,
        node.x.dtype,
        padding="VALID",
        stride_h=window.strides[0],
        stride_w=window.strides[1],
        fused_activation_function="NONE",
    )
    return _cut(node, tfl, result, full, window, extra, bias)


def _runtime_sizes(tfl: TflBuilder, tensor: Tensor, shape: list[int | None]) -> Tensor:
    """The output shape operand; an open batch is read from the input at run time."""
    if shape[0] is not None:
        return tfl.int32([dim or 0 for dim in shape])
    actual = tfl.op("shape", [tensor], [4], np.int32)
    batch = tfl.slice(actual, [0], [1])
    rest = tfl.int32([dim or 0 for dim in shape[1:]])
    return tfl.op("concatenation", [batch, rest], [4], np.int32, axis=0, fused_activation_function="NONE")


def _cut(
    node: TflNode,
    tfl: TflBuilder,
    result: Tensor,
    full: list[int],
    window: Window,
    extra: tuple[int, ...],
    bias: Array,
) -> Tensor:
    """Drops ONNX's pads from the full result; output_padding beyond it holds the bias alone."""
    sizes = [f - b - a + e for f, b, a, e in zip(full, window.before, window.after, extra, strict=True)]
    beyond = [max(0, b + size - f) for b, size, f in zip(window.before, sizes, full, strict=True)]
    if any(beyond):
        if bias.any():
            node.unsupported("output_padding larger than its end pads together with a bias")
        result = tfl.pad(result, (0, 0, 0, 0), (0, *beyond, 0))
    batch, *_, channels = tfl.shape_of(result)
    return tfl.slice(result, (0, *window.before, 0), (batch, *sizes, channels)) if sizes != full or any(
        window.before
    ) else result
