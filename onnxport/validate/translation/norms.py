"""Normalizations as their parts.

    Given   LayerNormalization(x)              Result  (x - mean) * (1 / sqrt(variance + epsilon)) * scale + bias
    Given   InstanceNormalization(x)           Result  the same over space
    Given   GroupNormalization(x)              Result  the same over groups of channels and space

InstanceNormalization of a Reshape to [N, groups, rest] is how exporters write GroupNormalization. The mean of a group
is that of its channels' means, and the differences from a mean lose theirs once more, as a `.tflite` file of ours
computes them: it changes nothing but what a runtime rounded (ONNX LayerNormalization-17, InstanceNormalization-6,
GroupNormalization-21).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.validate.translation.layouts.sizes import static_sizes
from onnxport.validate.translation.place import Place

_Mean = Callable[[ir.Value], ir.Value]


def rewrite_layer_normalization(place: Place) -> None:
    data, scale, bias = (place.input(each) for each in range(3))
    axis = place.node.attributes.get_int("axis", -1)
    rank = None if data is None or data.shape is None else len(data.shape)
    if data is None or any(each.uses() for each in place.node.outputs[1:]) or (axis >= 0 and rank is None):
        return
    axis = axis - (rank or 0) if axis >= 0 else axis

    def mean(value: ir.Value) -> ir.Value:
        return place.mean(value, axis)

    centred = place.add("Sub", [data, mean(data)])
    found = place.add("Mul", [centred, _inverse_deviation(place, centred, mean)])
    found = place.add("Mul", [found, scale])
    place.finish(found if bias is None else place.add("Add", [found, bias]))


def rewrite_instance_normalization(place: Place) -> None:
    data, scale, bias = place.input(0), place.array(place.input(1)), place.array(place.input(2))
    shape = None if data is None else static_sizes(data)
    if data is None or shape is None or len(shape) < 3 or scale is None or bias is None:
        return
    if (image := _grouped(data, shape)) is not None:
        sizes = static_sizes(image) or ()
        scale, bias = (np.repeat(each, sizes[1] // shape[1]) for each in (scale, bias))
        found = _normalize_groups(place, image, sizes, shape[1], scale, bias)
        place.finish(place.reshape(found, shape))
        return

    def mean(value: ir.Value) -> ir.Value:
        return place.mean(value, 2 - len(shape))

    centred = _centred(place, data, mean)
    found = place.add("Mul", [centred, _inverse_deviation(place, centred, mean)])
    scales, biases = (_per_channel(place, each, len(shape)) for each in (scale, bias))
    place.finish(place.add("Add", [place.add("Mul", [found, scales]), biases]))


def rewrite_group_normalization(place: Place) -> None:
    data, scale, bias = place.input(0), place.array(place.input(1)), place.array(place.input(2))
    shape, groups = (
        None if data is None else static_sizes(data),
        place.node.attributes.get_int("num_groups", 1),
    )
    if data is None or shape is None or len(shape) < 3 or scale is None or bias is None:
        return
    if scale.size == shape[1]:  # before opset 21 it is one for each group
        place.finish(_normalize_groups(place, data, shape, groups, scale, bias))


def _grouped(data: ir.Value, shape: Sequence[int]) -> ir.Value | None:
    """Return the [N, C, space...] that a value is as [N, groups, rest]; None where it is no such view."""
    maker = data.producer()
    image = maker.inputs[0] if maker is not None and maker.op_type == "Reshape" else None
    own = None if image is None else static_sizes(image)
    if own is None or len(own) < 3 or len(shape) != 3 or own[0] != shape[0]:
        return None
    return image if own[1] % shape[1] == 0 else None


def _normalize_groups(
    place: Place, data: ir.Value, shape: Sequence[int], groups: int, scale: Array, bias: Array
) -> ir.Value:
    width = shape[1] // groups

    def mean(value: ir.Value, offset: float = 0.0) -> ir.Value:
        """Return the mean of each channel's group, and a number more: the compiler adds it where it spreads a mean."""
        found = place.mean(value, 2 - len(shape))
        if width == 1:
            return place.add("Add", [found, place.number(offset)]) if offset else found
        found = place.mean(place.reshape(found, [shape[0], groups, width]), -1)
        found = place.add("Add", [found, place.store(np.full((1, 1, width), offset, np.float32))])
        return place.reshape(found, [*shape[:2], *[1] * (len(shape) - 2)])

    centred = _centred(place, data, mean)
    variance = mean(place.add("Mul", [centred, centred]), _epsilon(place))
    inverse = place.add("Reciprocal", [place.add("Sqrt", [variance])])
    factors = place.add("Mul", [inverse, _per_channel(place, scale, len(shape))])
    found = place.add("Mul", [centred, factors])
    return place.add("Add", [found, _per_channel(place, bias, len(shape))])


def _centred(place: Place, data: ir.Value, mean: _Mean) -> ir.Value:
    once = place.add("Sub", [data, mean(data)])
    return place.add("Sub", [once, mean(once)])


def _inverse_deviation(place: Place, centred: ir.Value, mean: _Mean) -> ir.Value:
    variance = mean(place.add("Mul", [centred, centred]))
    radicand = place.add("Add", [variance, place.number(_epsilon(place))])
    return place.add("Reciprocal", [place.add("Sqrt", [radicand])])


def _epsilon(place: Place) -> float:
    return place.node.attributes.get_float("epsilon", 1e-5)


def _per_channel(place: Place, numbers: Array, rank: int) -> ir.Value:
    return place.store(numbers.astype(np.float32).reshape(-1, *[1] * (rank - 2)))
