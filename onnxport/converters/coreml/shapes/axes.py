"""ONNX's axes, which may count from the end."""

from __future__ import annotations

from onnxport.converters.coreml.builder import NoMil
from onnxport.converters.coreml.values import Value


def normalize_axis(axis: int, rank: int, *, last: bool = False) -> int:
    """Return an axis counted from 0.

    Args:
        last: accept the place behind the last axis.
    """
    if not -rank <= axis < rank + last:
        raise NoMil(f"names axis {axis} of a tensor that has {rank}")
    return axis + rank if axis < 0 else axis


def named_axes(axes: Value, rank: int) -> list[int]:
    """Return constant axes, counted from 0."""
    assert axes.constant is not None
    return [normalize_axis(int(axis), rank) for axis in axes.constant.reshape(-1)]
