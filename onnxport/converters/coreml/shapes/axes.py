"""Axes as ONNX counts them."""

from __future__ import annotations

from onnxport.converters.coreml.builder import NoMil
from onnxport.converters.coreml.values import Value


def normalized(axis: int, rank: int, *, last: bool = False) -> int:
    """An axis that may count from the end, from 0 on.

    Args:
        last: whether the place behind the last axis is one, too.
    """
    if not -rank <= axis < rank + last:
        raise NoMil(f"names axis {axis} of a tensor that has {rank}")
    return axis + rank if axis < 0 else axis


def named_axes(axes: Value, rank: int) -> list[int]:
    """Axes given as a constant, from 0 on."""
    assert axes.constant is not None
    return [normalized(int(axis), rank) for axis in axes.constant.reshape(-1)]
