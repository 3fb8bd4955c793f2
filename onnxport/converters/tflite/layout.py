"""Axis orders: the order of a value's logical (ONNX) axes in its physical (TFLite) tensor.

A permutation is a tuple where physical axis i is logical axis perm[i]. ONNX keeps channels at axis 1, TFLite's
convolutions want them last. Values carry the order they are in, Transpose becomes a relabelling, and a
transpose is emitted only where an op insists on another order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

Permutation = tuple[int, ...]
Shape = tuple[int | None, ...]


def identity(rank: int) -> Permutation:
    return tuple(range(rank))


def channels_last(rank: int) -> Permutation:
    """Return the order in which ONNX's N, C, spatial... lies as N, spatial..., C."""
    return (0, *range(2, rank), 1)


def axis_last(rank: int, axis: int) -> Permutation:
    return (*(a for a in range(rank) if a != axis), axis)


def without_axes(order: Permutation, gone: Collection[int]) -> Permutation:
    """Return the axis order of a tensor that loses some of its logical axes."""
    left = sorted(axis for axis in order if axis not in gone)
    return tuple(left.index(axis) for axis in order if axis not in gone)


def permute(shape: Sequence[int | None], perm: Permutation) -> Shape:
    """Return the physical shape of a value with logical `shape`."""
    return tuple(shape[axis] for axis in perm)


def transpose_between(source: Permutation, target: Permutation) -> Permutation:
    """Return the transpose that takes a tensor in physical order `source` to physical order `target`."""
    return tuple(source.index(axis) for axis in target)


def after_transpose(physical: Permutation, transpose: Permutation) -> Permutation:
    """Return the order of a tensor after ONNX's Transpose(perm=transpose) has renamed its logical axes."""
    return tuple(transpose.index(axis) for axis in physical)


def moves_no_data(shape: Sequence[int | None], transpose: Sequence[int]) -> bool:
    """Return whether a transpose of a tensor of `shape` moves axes of size 1 only: a reshape does the same."""
    moved = [axis for axis in transpose if shape[axis] != 1]
    return moved == sorted(moved)


def broadcast_shape(*shapes: Shape) -> Shape:
    """Broadcast shapes as NumPy does; None is open, and stays so against 1."""
    rank = max(len(shape) for shape in shapes)
    columns = zip(*[(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes], strict=True)
    return tuple(
        next((size for size in column if size not in (1, None)), None if None in column else 1)
        for column in columns
    )


def product(sizes: Sequence[int | None]) -> int | None:
    """Return the product of sizes, None if one is open."""
    return None if None in sizes else prod(size or 0 for size in sizes)


def normalize_axis(axis: int, rank: int) -> int:
    return axis + rank if axis < 0 else axis


Group = tuple[tuple[int, ...], tuple[int, ...]]


def reshape_groups(before: Sequence[int], after: Sequence[int]) -> list[Group] | None:
    """Pair (axes before, axes after) that hold the same elements, in order; None if sizes disagree.

    [2, 3, 4, 5] -> [6, 20] gives [((0, 1), (0,)), ((2, 3), (1,))]: each group can be reshaped on its own,
    wherever its axes lie, as long as they lie together and in order.
    """
    groups: list[Group] = []
    i = j = 0
    while i < len(before) or j < len(after):
        ins, outs = list(range(i, min(i + 1, len(before)))), list(range(j, min(j + 1, len(after))))
        i, j = i + len(ins), j + len(outs)
        while (left := prod(before[a] for a in ins)) != (right := prod(after[a] for a in outs)):
            if left < right and i < len(before):
                ins.append(i)
                i += 1
            elif j < len(after):
                outs.append(j)
                j += 1
            else:
                return None
        groups.append((tuple(ins), tuple(outs)))
    return groups


def reshape_in_place(
    before: Sequence[int], after: Sequence[int], physical: Permutation
) -> Permutation | None:
    """Return the output's physical order if a tensor in order `physical` can be reshaped without moving data.

    Every group of reshape_groups must lie together and in order; axes of size 1 lie anywhere. None otherwise.
    """
    groups = reshape_groups(before, after)
    if groups is None:
        return None
    order = [axis for axis in physical if before[axis] != 1]
    starts: list[tuple[float, int]] = []  # (position of the group's first real axis, group)
    previous = -1.0
    for number, (ins, _) in enumerate(groups):
        positions = [order.index(axis) for axis in ins if before[axis] != 1]
        if positions and positions != list(range(positions[0], positions[0] + len(positions))):
            return None
        # A group of ones only follows the group before it.
        previous = float(positions[0]) if positions else previous + 0.001
        starts.append((previous, number))
    return tuple(axis for _, number in sorted(starts) for axis in groups[number][1])
