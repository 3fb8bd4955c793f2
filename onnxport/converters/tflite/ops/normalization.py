"""Normalizations and softmax."""

from __future__ import annotations

import numpy as np

from onnxport.converters.tflite.builder import Array, Tensor, TflBuilder, TflNode, constant_of
from onnxport.converters.tflite.layout import Permutation, axis_last, channels_last, identity, normalized, permuted
from onnxport.converters.tflite.registry import lower


@lower("BatchNormalization")
def batch_normalization(node: TflNode, tfl: TflBuilder) -> None:
    """y = (x - mean) / sqrt(var + epsilon) * scale + bias per channel (ONNX BatchNormalization-15).

    Written as one multiplication and one addition, which the compiler folds into a convolution before it.
    """
    if node.attribute("training_mode", 0):
        node.unsupported("training_mode is set; export the model for inference")
    node.ignore("momentum")  # of the running statistics, which only training updates
    x = node.x
    names = ("the scale", "the bias", "the mean", "the variance")
    scale, bias, mean, variance = (
        constant_of(node, i, name).astype(np.float64) for i, name in enumerate(names, start=1)
    )
    factor = scale / np.sqrt(variance + node.attribute("epsilon", 1e-5))
    order = tfl.common_order(x)
    shape = permuted(x.shape, order)
    result = tfl.binary("mul", tfl.tensor(x, order), _per_channel(tfl, factor, order), shape)
    result = tfl.binary("add", result, _per_channel(tfl, bias - mean * factor, order), shape)
    node.emit(tfl.computed(result, x.dtype, order))


def _per_channel(tfl: TflBuilder, values: Array, order: Permutation) -> Tensor:
    """A float32 constant that broadcasts along logical axis 1 of a tensor in `order`."""
    shape = [len(values) if axis == 1 else 1 for axis in order]
    return tfl.constant(values.astype(np.float32).reshape(shape))


@lower("InstanceNormalization")
def instance_normalization(node: TflNode, tfl: TflBuilder) -> None:
    """Each channel of each sample to zero mean and unit variance over space (ONNX InstanceNormalization-22)."""
    x = node.x
    scale, bias = (constant_of(node, i, name) for i, name in ((1, "the scale"), (2, "the bias")))
    order = tfl.common_order(x)
    axes = [i for i, axis in enumerate(order) if axis >= 2]
    result = _standardized(tfl, tfl.tensor(x, order), axes, node.attribute("epsilon", 1e-5))
    shape = permuted(x.shape, order)
    result = tfl.binary("mul", result, _per_channel(tfl, scale, order), shape)
    node.emit(tfl.computed(tfl.binary("add", result, _per_channel(tfl, bias, order), shape), x.dtype, order))


@lower("LayerNormalization")
def layer_normalization(node: TflNode, tfl: TflBuilder) -> None:
    """Zero mean and unit variance over the axes from `axis` on, in float32 (ONNX LayerNormalization-17)."""
    node.ignore("stash_type")  # float32, which is what it is computed in
    x = node.x
    axis = normalized(node.attribute("axis", -1), x.rank)
    if node.wants_output(1) or node.wants_output(2):
        node.unsupported("its mean or deviation output is used")
    tensor = tfl.tensor(x)
    shape = x.shape
    result = _standardized(tfl, tensor, list(range(axis, x.rank)), node.attribute("epsilon", 1e-5))
    result = tfl.binary("mul", result, tfl.aligned(node.input(1), identity(x.rank)), shape)
    if node.has_input(2):
        result = tfl.binary("add", result, tfl.aligned(node.input(2), identity(x.rank)), shape)
    node.emit(tfl.computed(result, x.dtype))


def _standardized(tfl: TflBuilder, tensor: Tensor, axes: list[int], epsilon: float) -> Tensor:
    """(x - mean) / sqrt(var + epsilon) over physical `axes`."""
    shape = tfl.shape_of(tensor)
    reduced = [1 if i in axes else dim for i, dim in enumerate(shape)]
    over = tfl.int32(axes)
    mean = tfl.op("mean", [tensor, over], reduced, np.float32, keep_dims=True)
    squares = tfl.binary("squared_difference", tensor, mean, shape)
    variance = tfl.op("mean", [squares, over], reduced, np.float32, keep_dims=True)
    shifted = tfl.binary("add", variance, tfl.constant(np.float32(epsilon)), reduced)
    deviation = tfl.op("rsqrt", [shifted], reduced, np.float32)
    return tfl.binary("mul", tfl.binary("sub", tensor, mean, shape), deviation, shape)


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
        permuted(x.shape, order),
        x.dtype,
        radius=(size - 1) // 2,
        bias=float(node.attribute("bias", 1.0)),
        alpha=float(node.attribute("alpha", 1e-4)) / size,
        beta=float(node.attribute("beta", 0.75)),
    )
    node.emit(tfl.computed(result, x.dtype, order))


@lower("Softmax", "LogSoftmax")
def softmax(node: TflNode, tfl: TflBuilder) -> None:
    """Softmax along one axis (ONNX Softmax-13); TFLite's works along the last one."""
    x = node.x
    axis = normalized(node.attribute("axis", -1), x.rank)
    order = next((order for order in x.copies if order[-1] == axis), axis_last(x.rank, axis))
    name, attributes = {"Softmax": ("softmax", {"beta": 1.0}), "LogSoftmax": ("log_softmax", {})}[node.op]
    result = tfl.op(name, [tfl.tensor(x, order)], permuted(x.shape, order), x.dtype, **attributes)
    node.emit(tfl.computed(result, x.dtype, order))
