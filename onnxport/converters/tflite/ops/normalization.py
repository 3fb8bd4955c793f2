"""Normalizations and softmax."""

from __future__ import annotations

import numpy as np

from onnxport.converters.semantics import batch_norm_factors, check_inference, check_stash_type
from onnxport.converters.tflite.broadcasting import broadcast
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.layout import axis_last, channels_last, normalize_axis, permute
from onnxport.converters.tflite.ops.elementwise import unary
from onnxport.converters.tflite.ops.reduction import reduce_axes
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.values import Value, scalar


@lower("BatchNormalization")
def batch_normalization(node: TflNode, tfl: TflBuilder) -> None:
    """y = (x - mean) / sqrt(var + epsilon) * scale + bias per channel (ONNX BatchNormalization-15).

    One multiplication and one addition, which the compiler folds into a convolution before it.
    """
    check_inference(node)
    x, epsilon = node.x, node.attribute("epsilon", 1e-5)
    parameters = [node.input(i) for i in range(1, 5)]
    if (known := batch_norm_factors(parameters, epsilon)) is not None:
        factor, mean, bias = known
        factors, offsets = (
            Value(array.shape, np.float32, constant=array.astype(np.float32))
            for array in (factor, bias - mean * factor)
        )
    else:
        scale_, bias_, mean_, variance_ = (tfl.float32(value) for value in parameters)
        factors = broadcast(tfl, "mul", scale_, _inverse_deviation(tfl, variance_, epsilon))
        offsets = broadcast(tfl, "sub", bias_, broadcast(tfl, "mul", mean_, factors))
    node.emit(_affine(tfl, x, factors, offsets))


def _affine(tfl: TflBuilder, x: Value, factors: Value, offsets: Value) -> Value:
    """x * factors + offsets in float32, with factors and offsets per channel (logical axis 1)."""
    product = broadcast(tfl, "mul", tfl.float32(x), _per_channel(tfl, factors, x.rank))
    return tfl.converted(broadcast(tfl, "add", product, _per_channel(tfl, offsets, x.rank)), x.dtype)


def _per_channel(tfl: TflBuilder, values: Value, rank: int) -> Value:
    """[C] as an operand that broadcasts along logical axis 1 of `rank` axes."""
    shape = (*values.shape, *(1,) * (rank - 2))
    if values.constant is not None:
        return Value(shape, values.dtype, constant=values.constant.reshape(values.constant.shape + shape[1:]))
    return tfl.computed(tfl.reshape(tfl.tensor(values), shape))


def _inverse_deviation(tfl: TflBuilder, variance: Value, epsilon: float) -> Value:
    """1 / sqrt(variance + epsilon)."""
    return unary(tfl, "rsqrt", broadcast(tfl, "add", variance, scalar(epsilon, np.float32)))


@lower("InstanceNormalization")
def instance_normalization(node: TflNode, tfl: TflBuilder) -> None:
    """Standardize each channel of each sample over space (ONNX InstanceNormalization-22)."""
    x = node.x
    scale, bias = (tfl.float32(node.input(i)) for i in (1, 2))
    standard, _, _ = _standardize(tfl, x, list(range(2, x.rank)), node.attribute("epsilon", 1e-5))
    node.emit(tfl.converted(_affine(tfl, standard, scale, bias), x.dtype))


@lower("LayerNormalization")
def layer_normalization(node: TflNode, tfl: TflBuilder) -> None:
    """Standardize over the axes from `axis` on, in float32 (ONNX LayerNormalization-17)."""
    check_stash_type(node)
    x = node.x
    axes = list(range(normalize_axis(node.attribute("axis", -1), x.rank), x.rank))
    standard, mean, inverse = _standardize(tfl, x, axes, node.attribute("epsilon", 1e-5))
    result = broadcast(tfl, "mul", standard, tfl.float32(node.input(1)))
    if node.has_input(2):
        result = broadcast(tfl, "add", result, tfl.float32(node.input(2)))
    node.emit(tfl.converted(result, x.dtype))
    for index, statistic in ((1, mean), (2, inverse)):
        if node.wants_output(index):
            node.emit(statistic, index)


def _standardize(tfl: TflBuilder, x: Value, axes: list[int], epsilon: float) -> tuple[Value, Value, Value]:
    """Return (x - mean) / sqrt(var + epsilon) over logical `axes`, the mean and the inverse deviation, float32."""
    x = tfl.float32(x)
    mean = reduce_axes(tfl, "mean", x, axes, keep=True)
    centred = broadcast(tfl, "sub", x, mean)
    variance = reduce_axes(tfl, "mean", broadcast(tfl, "mul", centred, centred), axes, keep=True)
    inverse = _inverse_deviation(tfl, variance, epsilon)
    return broadcast(tfl, "mul", centred, inverse), mean, inverse


@lower("LpNormalization")
def lp_normalization(node: TflNode, tfl: TflBuilder) -> None:
    """x divided by its L1 or L2 norm along an axis (ONNX LpNormalization-22); 0 where that norm is 0."""
    x, p = node.x, node.attribute("p", 2)
    axis = normalize_axis(node.attribute("axis", -1), x.rank)
    wide = tfl.float32(x)
    powers = unary(tfl, "abs", wide) if p == 1 else broadcast(tfl, "mul", wide, wide)
    norm = reduce_axes(tfl, "sum", powers, [axis], keep=True)
    if p == 2:
        norm = unary(tfl, "sqrt", norm)
    is_zero = broadcast(tfl, "equal", norm, scalar(0, np.float32))
    divisor = broadcast(tfl, "select_v2", is_zero, scalar(1, np.float32), norm)
    node.emit(tfl.converted(broadcast(tfl, "div", wide, divisor), x.dtype))


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
    order = channels_last(x.rank)
    result = tfl.op(
        "local_response_normalization",
        [tfl.tensor(x, order)],
        permute(x.shape, order),
        radius=(size - 1) // 2,
        bias=float(node.attribute("bias", 1.0)),
        alpha=float(node.attribute("alpha", 1e-4)) / size,
        beta=float(node.attribute("beta", 0.75)),
    )
    node.emit(tfl.computed(result, order))


@lower("Softmax", "LogSoftmax")
def softmax(node: TflNode, tfl: TflBuilder) -> None:
    """Softmax along one axis (ONNX Softmax-13); TFLite's works along the last one."""
    x = node.x
    axis = normalize_axis(node.attribute("axis", -1), x.rank)
    order = next((order for order in x.copies if order[-1] == axis), axis_last(x.rank, axis))
    name, attributes = {"Softmax": ("softmax", {"beta": 1.0}), "LogSoftmax": ("log_softmax", {})}[node.op]
    result = tfl.op(name, [tfl.tensor(x, order)], permute(x.shape, order), **attributes)
    node.emit(tfl.computed(result, order))
