"""Broadcasts over more axes than a kernel walks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxport.converters.tflite.kernels import BROADCAST_RANK, NoKernel
from onnxport.converters.tflite.layout import Shape, product
from onnxport.converters.tflite.tensors import Tensor, TensorBuilder


def broadcast_merged(
    tfl: TensorBuilder, name: str, operands: Sequence[Tensor], result: Shape, dtype: np.dtype[np.generic]
) -> Tensor:
    """Emit `tfl.<name>` with neighbouring axes merged that all operands have in full or lack (NoKernel: too many)."""
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

    def merge(shape: Sequence[int | None]) -> list[int | None]:
        return [product([shape[axis] for axis in group]) for group in groups]

    if any(merge(shape).count(None) > 1 for shape in shapes):
        raise NoKernel(
            f"TFLite's {name.upper()} broadcasts over at most {BROADCAST_RANK[name]} axes, open ones apart"
        )
    reshaped = [tfl.reshape(operand, merge(shape)) for operand, shape in zip(operands, shapes, strict=True)]
    outcome = tfl.op(name, reshaped, merge(result), dtype)
    if result.count(None) < 2:
        return tfl.reshape(outcome, result)
    return tfl.op("reshape", [outcome, tfl.sizes(whole)], result)


def _is_plain(shapes: Sequence[Shape], result: Shape) -> bool:
    """Return whether it is known of every operand which of the result's axes it has."""
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
