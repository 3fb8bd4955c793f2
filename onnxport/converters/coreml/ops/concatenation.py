"""Ops that join or repeat tensors: Concat, Expand, Tile."""

from __future__ import annotations

from collections.abc import Sequence

from onnxport.converters.coreml.builder import MilBuilder, MilNode
from onnxport.converters.coreml.numbers.integer_widths import is_natural
from onnxport.converters.coreml.ops.reshape import insert_axes
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.shapes import high_rank
from onnxport.converters.coreml.shapes.integers import (
    Integers,
    concatenate,
    integers,
    normalize_axis,
    size_of,
    sizes_of,
)
from onnxport.converters.coreml.values import Value


@lower("Concat")
def concat(node: MilNode, mil: MilBuilder) -> None:
    """Join values along an axis (ONNX Concat-13)."""
    axis = normalize_axis(node.attribute("axis"), node.x.rank)
    values = [value for value in node.rest() if value.shape[axis] != 0]
    if not values:
        node.unsupported("joins empty tensors, and Core ML has none")
    result = _join(mil, values, axis)
    result.is_natural = all(is_natural(value) for value in values)
    node.emit(result)


def _join(mil: MilBuilder, values: Sequence[Value], axis: int) -> Value:
    first = values[0]
    if len(values) == 1:
        return first
    if not any(high_rank.is_tall(value) for value in values):
        return mil.concat(values=values, axis=axis)
    length = concatenate(mil, [size_of(mil, value, axis) for value in values]).sum(0)

    def change(part: Value) -> Value:
        others = [high_rank.sides(mil, value, axis) for value in values[1:]]
        return mil.concat(values=[part, *others], axis=1)

    return high_rank.apply_along(mil, first, axis, change, [length])


@lower("Expand")
def expand(node: MilNode, mil: MilBuilder) -> None:
    """Broadcast to a shape (ONNX Expand-13), both ways: a 1 in it keeps the operand's size."""
    x, rank = node.input(0), len(node.output_shape())
    wanted = integers(mil, node.input(1))
    aligned = insert_axes(mil, x, range(rank - x.rank))
    target = concatenate(mil, [*[1] * (rank - wanted.length), wanted])
    own = sizes_of(mil, aligned)
    repeats: list[Integers | int] = []
    for axis, (dim, result) in enumerate(zip(aligned.shape, node.output_shape(), strict=True)):
        if dim is None:
            # Sizes differ only where one of them is 1.
            repeats.append(own.element(axis).equals(1).where(target.element(axis), 1))
        else:
            repeats.append(1 if dim != 1 else result or target.element(axis))
    node.emit(_tile(mil, aligned, concatenate(mil, repeats)))


@lower("Tile")
def tile(node: MilNode, mil: MilBuilder) -> None:
    """Repeat a tensor along each axis (ONNX Tile-13)."""
    node.emit(_tile(mil, node.input(0), integers(mil, node.input(1))))


def _tile(mil: MilBuilder, x: Value, repeats: Integers) -> Value:
    if repeats.known is not None and (repeats.known == 1).all():
        return x
    if high_rank.is_tall(x):
        return high_rank.tile(mil, x, repeats)
    return mil.tile(x=x, reps=repeats.value)
