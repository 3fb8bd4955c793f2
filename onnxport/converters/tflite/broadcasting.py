"""Ops on operands that broadcast to one shape, in any axis order and at any rank."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from onnxport.converters.tflite.builder import TflBuilder
from onnxport.converters.tflite.kernels import BROADCAST_RANK, NoKernel
from onnxport.converters.tflite.layout import Shape, permute
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value

COMPARISONS = frozenset("equal greater greater_equal less less_equal not_equal".split())


def broadcast(tfl: TflBuilder, name: str, *values: Value) -> Value:
    """Emit `tfl.<name>` on operands that broadcast as NumPy's do.

    Raises:
        NoKernel: on the operands' type, or on a broadcast over more axes than the kernel walks.
    """
    shape = broadcast_shape(*(value.shape for value in values))
    rank = len(shape)
    order = tfl.common_order(*values) if max(value.rank for value in values) == rank else tuple(range(rank))
    ranked = any(v.rank == rank and (v.constant is None or v.constant.size > 1) for v in values)
    operands = [tfl.aligned(value, order, shrinks=ranked) for value in values]
    result = permute(shape, order)
    dtype = np.dtype(bool) if name in COMPARISONS else values[-1].dtype
    if rank > BROADCAST_RANK[name] and any(tfl.shape_of(operand) != result for operand in operands):
        return tfl.computed(_on_fewer_axes(tfl, name, operands, result, dtype), order)
    return tfl.computed(tfl.op(name, operands, result, dtype), order)


def broadcast_shape(*shapes: Shape) -> Shape:
    """Broadcast shapes as NumPy does; None is open, and stays so against 1."""
    rank = max(len(shape) for shape in shapes)
    columns = zip(*[(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes], strict=True)
    return tuple(_broadcast_dim(set(column)) for column in columns)


def _broadcast_dim(sizes: set[int | None]) -> int | None:
    known = [size for size in sizes if size not in (1, None)]
    if known:
        return known[0]
    return None if None in sizes else 1


def _on_fewer_axes(
    tfl: TflBuilder, name: str, operands: Sequence[Tensor], result: Shape, dtype: np.dtype[np.generic]
) -> Tensor:
    """Return the op with neighbouring axes merged that every operand either has in full or lacks."""
    rank = len(result)
    shapes = [(1,) * (rank - len(s)) + tuple(s) for s in map(tfl.shape_of, operands)]
    groups = _merge_groups(shapes, result)
    whole = next((o for o, s in zip(operands, shapes, strict=True) if s == result), None)
    if (
        len(groups) > BROADCAST_RANK[name]
        or not _is_plain(shapes, result)
        or (whole is None and None in result)
    ):
        raise NoKernel(f"TFLite's {name.upper()} broadcasts over at most {BROADCAST_RANK[name]} axes")

    def merged(shape: Sequence[int | None]) -> list[int | None]:
        sizes = [[shape[axis] for axis in group] for group in groups]
        return [None if None in each else prod(size or 0 for size in each) for each in sizes]

    if any(merged(shape).count(None) > 1 for shape in shapes):
        raise NoKernel(
            f"TFLite's {name.upper()} broadcasts over at most {BROADCAST_RANK[name]} axes, open ones apart"
        )
    reshaped = [tfl.reshape(operand, merged(shape)) for operand, shape in zip(operands, shapes, strict=True)]
    outcome = tfl.op(name, reshaped, merged(result), dtype)
    if result.count(None) < 2:
        return tfl.reshape(outcome, result)
    return tfl.op("reshape", [outcome, tfl.op("shape", [whole], [rank], np.int32)], result)


def _is_plain(shapes: Sequence[Shape], result: Shape) -> bool:
    """Tell if it is known of every operand which of the result's axes it has."""
    for axis, size in enumerate(result):
        own = [shape[axis] for shape in shapes]
        if None in own and (size is not None or own.count(None) > 1 or any(s not in (1, None) for s in own)):
            return False
    return True


def _merge_groups(shapes: Sequence[Shape], result: Shape) -> list[list[int]]:
    """Group neighbouring axes in which each operand has the result's sizes throughout or 1 throughout."""
    groups: list[list[int]] = []
    last: tuple[bool, ...] | None = None  # None while the group holds only axes of size 1
    for axis, size in enumerate(result):
        pattern = last if size == 1 else tuple(shape[axis] == size for shape in shapes)
        if groups and (last is None or pattern == last):
            groups[-1].append(axis)
        else:
            groups.append([axis])
        last = pattern
    return groups
