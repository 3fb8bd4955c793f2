"""Sizes as MIL's parameters: Python's numbers where they are known, else int32 vectors of one element."""

from __future__ import annotations

from collections.abc import Sequence

from onnxport.converters.coreml.builder import MilBuilder
from onnxport.converters.coreml.shapes import integers
from onnxport.converters.coreml.shapes.integers import Integers
from onnxport.converters.coreml.values import Value

# A number, or an int32 [1].
Size = int | Value


def size_of(mil: MilBuilder, value: Value, axis: int) -> Size:
    """Return the size of an axis."""
    return _size(integers.size_of(mil, value, axis))


def product(mil: MilBuilder, sizes: Sequence[Size]) -> Size:
    """Return the product of sizes, 1 for none."""
    return _size(_vector(mil, sizes).product())


def as_shape(mil: MilBuilder, sizes: Sequence[Size]) -> list[int] | Value:
    """Return sizes as MIL takes a shape: constants if all of them are known."""
    vector = _vector(mil, sizes)
    return vector.value if vector.known is None else [int(each) for each in vector.known]


def reshape(mil: MilBuilder, value: Value, sizes: Sequence[Size]) -> Value:
    """Reshape `value`; one open size is inferred, more are computed."""
    if value.shape == tuple(sizes):
        return value
    if not sizes:
        return mil.squeeze(x=value, axes=list(range(value.rank)))
    if sum(not isinstance(each, int) for each in sizes) <= 1:
        shape: list[int] | Value = [each if isinstance(each, int) else -1 for each in sizes]
    else:
        shape = as_shape(mil, sizes)
    return mil.reshape(x=value, shape=shape)


def _vector(mil: MilBuilder, sizes: Sequence[Size]) -> Integers:
    return integers.concatenate(
        mil, [each if isinstance(each, int) else Integers(mil, each) for each in sizes]
    )


def _size(size: Integers) -> Size:
    return size.reshape(1).value if size.number is None else size.number
