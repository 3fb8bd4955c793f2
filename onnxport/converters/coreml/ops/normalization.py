"""Normalizations.

From iOS17 on, MIL's operators take scales, biases and epsilon in float32: half precision would turn an epsilon of
1e-12 into 6e-5. Without an operator of MIL's, the arithmetic is in float32.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder, MilNode
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.shapes.dims import Size, product, reshape, size_of
from onnxport.converters.coreml.values import Value
from onnxport.converters.semantics import batch_norm_factors, check_inference, check_stash_type
from onnxport.core.arrays import Array


def _parameters(mil: MilBuilder, **numbers: Array | float | None) -> dict[str, object]:
    """Make constants of parameters, all in one type as MIL wants them."""
    type_ = "fp32" if mil.at_least("iOS17") else mil.compute
    given = {name: np.asarray(each, np.float32) for name, each in numbers.items() if each is not None}
    return {name: mil.var(mil.constant(array), type_) for name, array in given.items()}


@lower("BatchNormalization")
def batch_normalization(node: MilNode, mil: MilBuilder) -> None:
    """y = (x - mean) / sqrt(var + epsilon) * scale + bias per channel (ONNX BatchNormalization-15)."""
    check_inference(node)
    x, epsilon = node.x, node.attribute("epsilon", 1e-5)
    parameters = [node.input(i) for i in range(1, 5)]
    known = batch_norm_factors(parameters, epsilon)
    if known is None:
        node.emit(_batch_norm_at_run_time(mil, x, parameters, epsilon))
        return
    # A small variance would not survive half precision; the factor does.
    factor, mean, bias = known
    if 3 <= x.rank <= 5:
        statistics = {"mean": mean, "variance": np.ones_like(mean)}
        node.emit(mil.batch_norm(x=x, **_parameters(mil, **statistics, gamma=factor, beta=bias, epsilon=0.0)))
        return
    factors, offsets = (_per_channel(each, x.rank) for each in (factor, bias - mean * factor))
    node.emit(mil.add(x=mil.mul(x=x, y=factors), y=offsets))


def _per_channel(numbers: Array, rank: int) -> Array:
    return np.asarray(numbers, np.float32).reshape(-1, *(1,) * (rank - 2))


def _batch_norm_at_run_time(mil: MilBuilder, x: Value, parameters: Sequence[Value], epsilon: float) -> Value:
    mil.compute = "fp32"
    scale, bias, mean, variance = (_along_channels(mil, value, x.rank) for value in parameters)
    factor = mil.mul(x=scale, y=mil.rsqrt(x=variance, epsilon=epsilon))
    centred = mil.sub(x=x, y=mean)
    return mil.add(x=mil.mul(x=centred, y=factor), y=bias)


def _along_channels(mil: MilBuilder, values: Value, rank: int) -> Value:
    """Reshape [C] to broadcast along axis 1 of `rank` axes."""
    if values.constant is not None:
        return mil.constant(_per_channel(values.constant, rank))
    return mil.reshape(x=values, shape=[-1, *(1,) * (rank - 2)])


def _standardize(
    mil: MilBuilder, x: Value, axes: Sequence[int], epsilon: float
) -> tuple[Value, Value, Value]:
    """Return (x - mean) / sqrt(var + epsilon) over `axes`, the mean and the inverse deviation."""
    mean = mil.reduce_mean(x=x, axes=list(axes), keep_dims=True)
    centred = mil.sub(x=x, y=mean)
    variance = mil.reduce_mean(x=mil.mul(x=centred, y=centred), axes=list(axes), keep_dims=True)
    inverse = mil.rsqrt(x=variance, epsilon=epsilon)
    return mil.mul(x=centred, y=inverse), mean, inverse


@lower("InstanceNormalization")
def instance_normalization(node: MilNode, mil: MilBuilder) -> None:
    """Standardize each channel of each sample over space (ONNX InstanceNormalization-22)."""
    x, scale, bias = node.x, node.input(1), node.input(2)
    epsilon = node.attribute("epsilon", 1e-5)
    if x.rank < 3:
        node.unsupported("has an input without spatial axes")
    if x.rank <= 4 and scale.constant is not None and bias.constant is not None:
        values = _parameters(mil, gamma=scale.constant, beta=bias.constant, epsilon=epsilon)
        node.emit(mil.instance_norm(x=x, **values))
        return
    mil.compute = "fp32"
    standard, _, _ = _standardize(mil, x, range(2, x.rank), epsilon)
    scaled = mil.mul(x=standard, y=_along_channels(mil, scale, x.rank))
    node.emit(mil.add(x=scaled, y=_along_channels(mil, bias, x.rank)))


@lower("GroupNormalization")
def group_normalization(node: MilNode, mil: MilBuilder) -> None:
    """Standardize groups of channels, then scale and shift each channel (ONNX GroupNormalization-21)."""
    check_stash_type(node)
    x, groups, epsilon = node.x, node.attribute("num_groups"), node.attribute("epsilon", 1e-5)
    sizes = [size_of(mil, x, axis) for axis in range(x.rank)]
    rest = product(mil, sizes[1:])
    width: Size = rest // groups if isinstance(rest, int) else mil.floor_div(x=rest, y=groups)
    grouped = reshape(mil, x, [sizes[0], groups, width])
    standard = mil.instance_norm(x=grouped, **_parameters(mil, epsilon=epsilon))
    scaled = mil.mul(x=reshape(mil, standard, sizes), y=_along_channels(mil, node.input(1), x.rank))
    node.emit(mil.add(x=scaled, y=_along_channels(mil, node.input(2), x.rank)))


@lower("LayerNormalization")
def layer_normalization(node: MilNode, mil: MilBuilder) -> None:
    """Standardize over the axes from `axis` on, in float32 (ONNX LayerNormalization-17)."""
    check_stash_type(node)
    x, scale, bias, epsilon = node.x, node.input(1), node.optional(2), node.attribute("epsilon", 1e-5)
    axes = list(range(node.attribute("axis", -1) % x.rank, x.rank))
    if any(node.wants_output(index) for index in (1, 2)):
        mil.compute = "fp32"
        result, mean, inverse = _standardize(mil, x, axes, epsilon)
        for index, statistic in ((1, mean), (2, inverse)):
            if node.wants_output(index):
                node.emit(statistic, index)
        gamma = beta = None
    else:
        gamma, beta = _broadcast(scale, x, axes), None if bias is None else _broadcast(bias, x, axes)
        if gamma is None:
            beta = None  # MIL takes no offset without a scale
        result = mil.layer_norm(x=x, axes=axes, **_parameters(mil, gamma=gamma, beta=beta, epsilon=epsilon))
    if gamma is None:
        result = mil.mul(x=result, y=scale)
    if beta is None and bias is not None:
        result = mil.add(x=result, y=bias)
    node.emit(result)


def _broadcast(value: Value, x: Value, axes: Sequence[int]) -> Array | None:
    """Broadcast a constant scale or bias to the normalized axes, as MIL wants it; None if that is not possible."""
    shape = tuple(x.shape[axis] for axis in axes)
    if value.constant is None or value.rank > len(axes):
        return None
    if None in shape:
        return value.constant if value.rank == len(axes) and 1 not in value.shape else None
    return np.broadcast_to(value.constant, [dim or 0 for dim in shape])


@lower("LpNormalization")
def lp_normalization(node: MilNode, mil: MilBuilder) -> None:
    """x divided by its L1 or L2 norm along an axis (ONNX LpNormalization-22); 0 where that norm is 0."""
    x, p, axis = node.x, node.attribute("p", 2), node.attribute("axis", -1)
    mil.compute = "fp32"  # half precision does not hold the squares
    reduce = mil.reduce_l1_norm if p == 1 else mil.reduce_l2_norm
    norm = reduce(x=x, axes=[axis % x.rank], keep_dims=True)
    divisor = mil.select(cond=mil.equal(x=norm, y=0.0), a=1.0, b=norm)
    node.emit(mil.real_div(x=x, y=divisor))


@lower("LRN")
def local_response_normalization(node: MilNode, mil: MilBuilder) -> None:
    """x / (bias + alpha / size * sum of squares over `size` channels) ^ beta (ONNX LRN-13)."""
    x, size, k = node.x, node.attribute("size"), float(node.attribute("bias", 1.0))
    alpha, beta = float(node.attribute("alpha", 1e-4)), float(node.attribute("beta", 0.75))
    if size % 2 and x.rank in (3, 4):
        node.emit(mil.local_response_norm(x=x, size=size, **_parameters(mil, alpha=alpha, beta=beta, k=k)))
        return
    # MIL does not document on which side an even window is longer; ONNX puts the odd channel behind.
    mil.compute = "fp32"
    before = (size - 1) // 2
    pads = [0, 0, before, size - 1 - before, *(0,) * (2 * x.rank - 4)]
    squares = mil.pad(x=mil.mul(x=x, y=x), pad=pads, mode="constant", constant_val=0.0)
    total = None
    for offset in range(size):
        begin, end = [0] * x.rank, [0] * x.rank
        begin[1], end[1] = offset, offset - size + 1
        end_mask = [axis != 1 or end[1] == 0 for axis in range(x.rank)]
        part = mil.slice_by_index(x=squares, begin=begin, end=end, end_mask=end_mask)
        total = part if total is None else mil.add(x=total, y=part)
    weight = mil.add(x=mil.mul(x=total, y=alpha / size), y=k)
    node.emit(mil.real_div(x=x, y=mil.pow(x=weight, y=beta)))
