"""Normalizations and softmax."""

from __future__ import annotations

import numpy as np

from onnxport.converters.semantics import batch_norm_factors, check_inference, check_stash_type
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.layout import axis_last, channels_last, normalize_axis
from onnxport.converters.tflite.ops.reduction import reduce_axes
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.values import Value, constant


@lower("BatchNormalization")
def batch_normalization(node: TflNode, tfl: TflBuilder) -> None:
    """y = (x - mean) / sqrt(var + epsilon) * scale + bias per channel (ONNX BatchNormalization-15).

    One multiplication and one addition, which the compiler folds into a convolution before it.
    """
    check_inference(node)
    epsilon = node.attribute("epsilon", 1e-5)
    parameters = [node.input(i) for i in range(1, 5)]
    if (known := batch_norm_factors(parameters, epsilon)) is not None:
        factor, mean, bias = known
        factors, offsets = (constant(each.astype(np.float32)) for each in (factor, bias - mean * factor))
    else:
        scale_, bias_, mean_, variance_ = (tfl.float32(value) for value in parameters)
        factors = tfl.broadcast("mul", scale_, _inverse_deviation(tfl, variance_, epsilon))
        offsets = tfl.broadcast("sub", bias_, tfl.broadcast("mul", mean_, factors))
    node.emit(_affine(tfl, node.x, factors, offsets))


def _affine(tfl: TflBuilder, x: Value, factors: Value, offsets: Value) -> Value:
    """Return x * factors + offsets in float32, with factors and offsets per channel (logical axis 1)."""
    product = tfl.broadcast("mul", tfl.float32(x), _per_channel(tfl, factors, x.rank))
    return tfl.convert(tfl.broadcast("add", product, _per_channel(tfl, offsets, x.rank)), x.dtype)


def _per_channel(tfl: TflBuilder, values: Value, rank: int) -> Value:
    """Return [C] as an operand that broadcasts along logical axis 1 of `rank` axes."""
    shape = (*values.shape, *(1,) * (rank - 2))
    if values.constant is not None:
        return constant(values.constant.reshape(values.constant.shape + shape[1:]))
    return tfl.value(tfl.reshape(tfl.tensor(values), shape))


def _inverse_deviation(tfl: TflBuilder, variance: Value, epsilon: float) -> Value:
    """Return 1 / sqrt(variance + epsilon)."""
    return tfl.apply("rsqrt", tfl.broadcast("add", variance, epsilon))


@lower("InstanceNormalization")
def instance_normalization(node: TflNode, tfl: TflBuilder) -> None:
    """Standardize each channel of each sample over space (ONNX InstanceNormalization-22)."""
    x = node.x
    scale, bias = (tfl.float32(node.input(i)) for i in (1, 2))
    space = list(range(2, x.rank))
    standard, _, _ = _standardize(tfl, x, space, node.attribute("epsilon", 1e-5), recentres=True)
    node.emit(tfl.convert(_affine(tfl, standard, scale, bias), x.dtype))


@lower("GroupNormalization")
def group_normalization(node: TflNode, tfl: TflBuilder) -> None:
    """Standardize groups of channels, then scale and shift each channel (ONNX GroupNormalization-21).

    A group's mean is that of its channels' means: the image stays whole, in its axis order.
    """
    check_stash_type(node)
    x, groups, epsilon = tfl.float32(node.x), node.attribute("num_groups"), node.attribute("epsilon", 1e-5)
    scale, bias = (tfl.float32(node.input(i)) for i in (1, 2))
    channels = x.shape[1]
    if channels is None:
        node.unsupported("an open number of channels; fix the input's size with --shape NAME=...")

    def mean(value: Value) -> Value:
        means = reduce_axes(tfl, "mean", value, list(range(2, value.rank)), keep=True)
        rows = tfl.reshape(tfl.tensor(means), [means.shape[0], groups, channels // groups])
        of_groups = reduce_axes(tfl, "mean", tfl.value(rows), [2], keep=True)
        spread = tfl.broadcast("add", of_groups, constant(np.zeros((1, 1, channels // groups), np.float32)))
        return tfl.value(tfl.reshape(tfl.tensor(spread), means.shape))

    centred = tfl.broadcast("sub", x, mean(x))
    centred = tfl.broadcast("sub", centred, mean(centred))  # see _standardize
    inverse = _inverse_deviation(tfl, mean(tfl.broadcast("mul", centred, centred)), epsilon)
    factors = tfl.broadcast("mul", inverse, _per_channel(tfl, scale, x.rank))
    scaled = tfl.broadcast("mul", centred, factors)
    node.emit(tfl.convert(tfl.broadcast("add", scaled, _per_channel(tfl, bias, x.rank)), node.x.dtype))


@lower("LayerNormalization")
def layer_normalization(node: TflNode, tfl: TflBuilder) -> None:
    """Standardize over the axes from `axis` on, in float32 (ONNX LayerNormalization-17)."""
    check_stash_type(node)
    x = node.x
    axes = list(range(normalize_axis(node.attribute("axis", -1), x.rank), x.rank))
    standard, mean, inverse = _standardize(tfl, x, axes, node.attribute("epsilon", 1e-5))
    result = tfl.broadcast("mul", standard, tfl.float32(node.input(1)))
    if node.has_input(2):
        result = tfl.broadcast("add", result, tfl.float32(node.input(2)))
    node.emit(tfl.convert(result, x.dtype))
    for index, statistic in ((1, mean), (2, inverse)):
        if node.wants_output(index):
            node.emit(statistic, index)


def _standardize(
    tfl: TflBuilder, x: Value, axes: list[int], epsilon: float, *, recentres: bool = False
) -> tuple[Value, Value, Value]:
    """Return (x - mean) / sqrt(var + epsilon) over logical `axes`, the mean and the inverse deviation, float32.

    LiteRT's MEAN adds one by one: over 16,384 equal numbers it is off by up to 1e-3, which epsilon divides to half a
    deviation. The mean of the differences is what the first one was off by.

    Args:
        recentres: whether to subtract that, too.
    """
    x = tfl.float32(x)
    mean = reduce_axes(tfl, "mean", x, axes, keep=True)
    centred = tfl.broadcast("sub", x, mean)
    if recentres:
        centred = tfl.broadcast("sub", centred, reduce_axes(tfl, "mean", centred, axes, keep=True))
    variance = reduce_axes(tfl, "mean", tfl.broadcast("mul", centred, centred), axes, keep=True)
    inverse = _inverse_deviation(tfl, variance, epsilon)
    return tfl.broadcast("mul", centred, inverse), mean, inverse


@lower("LpNormalization")
def lp_normalization(node: TflNode, tfl: TflBuilder) -> None:
    """x divided by its L1 or L2 norm along an axis (ONNX LpNormalization-22); 0 where that norm is 0."""
    x, p = node.x, node.attribute("p", 2)
    axis = normalize_axis(node.attribute("axis", -1), x.rank)
    wide = tfl.float32(x)
    powers = tfl.apply("abs", wide) if p == 1 else tfl.broadcast("mul", wide, wide)
    norm = reduce_axes(tfl, "sum", powers, [axis], keep=True)
    if p == 2:
        norm = tfl.apply("sqrt", norm)
    is_zero = tfl.broadcast("equal", norm, 0)
    divisor = tfl.broadcast("select_v2", is_zero, 1, norm)
    node.emit(tfl.convert(tfl.broadcast("div", wide, divisor), x.dtype))


@lower("LRN")
def local_response_normalization(node: TflNode, tfl: TflBuilder) -> None:
    """x / (bias + alpha / size * sum of squares over `size` channels) ^ beta (ONNX LRN-13).

    TFLite sums over 2 * radius + 1 channels and takes alpha undivided.
    """
    x, size = node.x, node.attribute("size")
    if size % 2 == 0:
        node.unsupported(f"an even size ({size}); TFLite's window is symmetric")
    if x.rank != 4:
        node.unsupported(f"an input of rank {x.rank}; TFLite's takes images")
    bias, beta = float(node.attribute("bias", 1.0)), float(node.attribute("beta", 0.75))
    factors = {"bias": bias, "alpha": float(node.attribute("alpha", 1e-4)) / size, "beta": beta}
    name, radius = "local_response_normalization", (size - 1) // 2
    node.emit(tfl.apply(name, x, order=channels_last(4), radius=radius, **factors))


@lower("Softmax", "LogSoftmax")
def softmax(node: TflNode, tfl: TflBuilder) -> None:
    """Softmax along one axis (ONNX Softmax-13); TFLite's works along the last one."""
    x = node.x
    axis = normalize_axis(node.attribute("axis", -1), x.rank)
    order = next((order for order in x.copies if order[-1] == axis), axis_last(x.rank, axis))
    name, attributes = {"Softmax": ("softmax", {"beta": 1.0}), "LogSoftmax": ("log_softmax", {})}[node.op]
    node.emit(tfl.apply(name, x, order=order, **attributes))
