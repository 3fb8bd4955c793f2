"""Sizes of axes, known now or computed in the program."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder
from onnxport.converters.coreml.values import Array, Value

# A number, or an int32 [1].
Size = int | Value


def size_of(mil: MilBuilder, value: Value, axis: int) -> Size:
    """The size of an axis."""
    known = value.shape[axis]
    if known is not None:
        return known
    return mil.slice_by_index(x=mil.shape(x=value), begin=[axis], end=[axis + 1])  # type: ignore[no-any-return]


def multiplied(mil: MilBuilder, sizes: Sequence[Size]) -> Size:
    """The product of sizes, 1 for none."""
    result: Size = prod(each for each in sizes if isinstance(each, int))
    for each in sizes:
        if not isinstance(each, int):
            result = each if result == 1 else mil.mul(x=each, y=result)
    return result


def as_shape(mil: MilBuilder, sizes: Sequence[Size]) -> list[int] | Value:
    """Sizes as MIL takes a shape: constants if all of them are known."""
    if all(isinstance(each, int) for each in sizes):
        return [each for each in sizes if isinstance(each, int)]
    parts = [mil.constant(_one(each)) if isinstance(each, int) else each for each in sizes]
    return parts[0] if len(parts) == 1 else mil.concat(values=parts, axis=0)


def reshaped(mil: MilBuilder, value: Value, sizes: Sequence[Size]) -> Value:
    """`value` in another shape of as many elements; one open size is inferred, more are computed."""
    if value.shape == tuple(sizes):
        return value
    if not sizes:
        return mil.squeeze(x=value, axes=list(range(value.rank)))  # type: ignore[no-any-return]
    open_ = [place for place, each in enumerate(sizes) if not isinstance(each, int)]
    if len(open_) <= 1:
        shape: list[int] | Value = [each if isinstance(each, int) else -1 for each in sizes]
    else:
        shape = as_shape(mil, sizes)
    return mil.reshape(x=value, shape=shape)  # type: ignore[no-any-return]


def _one(size: int) -> Array:
    return np.array([size], np.int32)
