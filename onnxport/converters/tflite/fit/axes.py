"""Fewer axes for the same elements: neighbours merged that an operation treats alike."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import prod

from onnxport.converters.tflite.fit.operation import Sizes, elements, sizes
from onnxport.converters.tflite.tensors import Tensor, TensorBuilder

Groups = list[tuple[int, ...]]

MOST = 4  # axes of a tensor on the GPU


def merge_axes(shape: Sizes, keys: Sequence[Hashable]) -> Groups:
    """Group neighbouring axes with the same key; axes of size 1 join the group before them."""
    groups: list[list[int]] = []
    last: Hashable = None
    for axis, (size, key) in enumerate(zip(shape, keys, strict=True)):
        if groups and (size == 1 or key == last):
            groups[-1].append(axis)
            continue
        if groups and all(shape[each] == 1 for each in groups[-1]):  # leading ones join what follows
            groups[-1].append(axis)
        else:
            groups.append([axis])
        last = key
    return [tuple(group) for group in groups]


def group_sizes(shape: Sizes, groups: Groups) -> Sizes:
    return tuple(prod(shape[axis] for axis in group) for group in groups)


def with_rank(shape: Sequence[int], rank: int = MOST) -> Sizes:
    """Return the shape with so many axes, those in front of size 1."""
    return (*(1,) * (rank - len(shape)), *shape)


def as_rows(shape: Sequence[int]) -> Sizes:
    """Return the shape as [1, 1, what is before the last axis, the last axis]; ones for a scalar."""
    return with_rank((prod(shape[:-1]), shape[-1])) if shape else (1,) * MOST


def around(shape: Sizes, axis: int) -> Sizes:
    """Return the shape with one axis left, as [1, what is before, the axis, what is behind]."""
    axis %= len(shape)
    return (1, prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]))


def reshape(tfl: TensorBuilder, tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """Reshape a tensor, a constant at once."""
    if sizes(tensor) == tuple(shape):
        return tensor
    constant = elements(tensor)
    if constant is not None:
        return tfl.constant(constant.reshape(shape))
    return tfl.reshape(tensor, shape)


def permute(tfl: TensorBuilder, tensor: Tensor, perm: Sequence[int]) -> Tensor:
    """Transpose by operations of at most four axes.

    Axes that stay neighbours move together. What is left over of more than four is brought into order from the
    front, one block of axes in each step.
    """
    shape = sizes(tensor)
    result = tuple(shape[axis] for axis in perm)
    order = [axis for axis in perm if shape[axis] != 1]
    blocks: list[list[int]] = []
    for axis in order:
        real = [each for each in sorted(order) if blocks and blocks[-1][-1] < each < axis]
        if blocks and blocks[-1][-1] < axis and not real:
            blocks[-1].append(axis)
        else:
            blocks.append([axis])
    wanted = sorted(
        range(len(blocks)), key=lambda number: blocks[number][0]
    )  # the blocks in the operand's order
    weights = [prod(shape[axis] for axis in block) for block in blocks]
    if len(blocks) <= MOST:
        if wanted == sorted(wanted):
            return reshape(tfl, tensor, result)
        tensor = reshape(tfl, tensor, [weights[number] for number in wanted])
        places = [wanted.index(number) for number in range(len(blocks))]
        tensor = tfl.op("transpose", [tensor, tfl.int32(places)], weights)
        return reshape(tfl, tensor, result)
    current = wanted
    for place in range(len(blocks)):
        at = current.index(place)
        if at == place:
            continue
        count = next(
            (n for n in range(1, len(blocks) - at) if current[at + n] != place + n), len(blocks) - at
        )
        parts = current[:place], current[place:at], current[at : at + count], current[at + count :]
        first, skipped, moved, rest = (prod(weights[number] for number in part) for part in parts)
        tensor = reshape(tfl, tensor, (first, skipped, moved, rest))
        tensor = tfl.op("transpose", [tensor, tfl.int32([0, 2, 1, 3])], (first, moved, skipped, rest))
        current = [*parts[0], *parts[2], *parts[1], *parts[3]]
    return reshape(tfl, tensor, result)
