"""Convolutions."""

from __future__ import annotations

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder, MilNode
from onnxport.converters.coreml.ops.padding import interleave_pads, pad_spatial, window_pads
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.values import Value
from onnxport.converters.windows import check_axes, known_kernel, read_transposed_window, read_window


@lower("Conv")
def conv(node: MilNode, mil: MilBuilder) -> None:
    """Grouped, dilated, padded 1-D to 3-D convolution (ONNX Conv-22)."""
    x, weights = node.input(0), node.input(1)
    check_axes(node, "Core ML convolves")
    groups, kernel = node.attribute("group", 1), known_kernel(node, weights.shape)
    window = read_window(node, x.shape[2:], kernel, has_same_lower=mil.at_least("iOS16"))
    dilations = window.dilations
    if weights.constant is None and any(d != 1 for d in dilations):
        weights, dilations = _dilate_weights(mil, weights, dilations), (1,) * len(dilations)
    constant_bias, computed_bias = _split_bias(node)
    result = mil.conv(
        x=x,
        weight=weights,
        bias=constant_bias,
        strides=list(window.strides),
        dilations=list(dilations),
        groups=groups,
        **window_pads(window),
    )
    node.emit(_add_bias(mil, result, computed_bias))


def _dilate_weights(mil: MilBuilder, weights: Value, dilations: tuple[int, ...]) -> Value:
    """Dilate weights computed at run time, as MIL does for constant ones only."""
    shape = [dim or 0 for dim in weights.shape]
    for axis, dilation in enumerate(dilations, start=2):
        if dilation == 1:
            continue
        # Each element becomes the first of `dilation`, the last ones' zeros are cut off.
        flat = mil.reshape(
            x=weights, shape=[int(np.prod(shape[: axis + 1])), int(np.prod(shape[axis + 1 :])), 1]
        )
        rows = mil.transpose(x=flat, perm=[0, 2, 1])
        padded = mil.pad(x=rows, pad=[0, dilation - 1, 0, 0], mode="constant", constant_val=0.0)
        count, shape[axis] = shape[axis], shape[axis] * dilation
        weights = mil.reshape(x=padded, shape=shape)
        shape[axis] = (count - 1) * dilation + 1
        weights = mil.slice_by_size(x=weights, begin=[0] * len(shape), size=shape)
    return weights


def _split_bias(node: MilNode) -> tuple[Value | None, Value | None]:
    """Return the bias if it is constant, and if it is computed at run time."""
    bias = node.optional(2)
    return (bias, None) if bias is None or bias.constant is not None else (None, bias)


def _add_bias(mil: MilBuilder, result: Value, bias: Value | None) -> Value:
    if bias is None:
        return result
    return mil.add(x=result, y=mil.reshape(x=bias, shape=[1, -1, *(1,) * (result.rank - 2)]))


@lower("ConvTranspose")
def conv_transpose(node: MilNode, mil: MilBuilder) -> None:
    """Transposed, grouped, dilated convolution (ONNX ConvTranspose-22)."""
    x, weights = node.input(0), node.input(1)
    check_axes(node, "Core ML convolves")
    groups = node.attribute("group", 1)
    shape = read_transposed_window(node, known_kernel(node, weights.shape))
    window = shape.window
    # Elements beyond every window hold the bias alone.
    cut, beyond = shape.excess, shape.beyond
    constant_bias, computed_bias = _split_bias(node)
    result = mil.conv_transpose(
        x=x,
        weight=weights,
        bias=None if any(beyond) else constant_bias,
        pad_type="custom",
        pad=interleave_pads(window.before, cut),
        strides=list(window.strides),
        dilations=list(window.dilations),
        groups=groups,
    )
    result = pad_spatial(mil, result, (0,) * len(beyond), beyond)
    node.emit(_add_bias(mil, result, node.optional(2) if any(beyond) else computed_bias))
