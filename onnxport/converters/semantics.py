"""ONNX semantics that the lowerings of every target share: what attributes and constant operands mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxport.converters.lowering import NodeView, TargetValue
from onnxport.core.arrays import Array

_INT32_MAX = np.iinfo(np.int32).max


def check_divisor(node: NodeView[Any], divisor: TargetValue) -> None:
    """Refuse integers divided by a constant 0."""
    if divisor.constant is not None and not divisor.constant.all():
        node.unsupported("divides integers by zero")


def infinity_signs(node: NodeView[Any]) -> list[int]:
    """Return the signs of the infinities that an IsInf detects, 1 before -1."""
    names = ((1, "detect_positive"), (-1, "detect_negative"))
    signs = [sign for sign, name in names if node.attribute(name, 1)]
    if not signs:
        node.unsupported("detects neither sign")
    return signs


def check_indices(node: NodeView[Any], indices: Array, sizes: Sequence[int | None]) -> Array:
    """Refuse constant indices outside their axes; return the sizes, those of open axes the largest int32."""
    limits = np.array([_INT32_MAX if size is None else size for size in sizes])
    if ((indices < -limits) | (indices >= limits)).any():
        node.unsupported("an index outside its axis")
    return limits


def reduction_axes(node: NodeView[Any], axes: TargetValue | None) -> list[int] | None:
    """Return the axes that a reduction names, all if it names none; None if they are computed at run time."""
    rank, noop = node.x.rank, bool(node.attribute("noop_with_empty_axes", 0))
    if axes is None or axes.shape == (0,):
        return [] if noop else list(range(rank))
    if axes.constant is None:
        return None
    named = axes.constant.reshape(-1).tolist()
    if beyond := [axis for axis in named if not -rank <= axis < rank]:
        node.unsupported(f"reduces axis {beyond[0]} of a value of {rank} dimensions")
    return sorted({axis % rank for axis in named})


def shape_bounds(node: NodeView[Any]) -> tuple[int, int]:
    """Return the first dimension that a Shape gives, and the one after the last."""
    rank = node.x.rank
    first, last, _ = slice(node.attribute("start", 0), node.attribute("end", rank)).indices(rank)
    return first, last


def gemm_bias(c: TargetValue | None, beta: float, channels: int) -> Array | None:
    """Return beta * C as a bias [channels] if C is constant and the same for every row, else None."""
    if c is None or c.constant is None or c.constant.size not in (1, channels):
        return None
    if c.rank == 2 and c.shape[0] != 1:
        return None
    return np.ascontiguousarray(np.broadcast_to(c.constant.reshape(-1) * c.dtype.type(beta), (channels,)))


def check_inference(node: NodeView[Any]) -> None:
    """Refuse a BatchNormalization in training mode."""
    if node.attribute("training_mode", 0):
        node.unsupported("has training_mode set; export the model for inference")
    node.ignore("momentum")  # of the running statistics, which only training updates


def batch_norm_factors(
    parameters: Sequence[TargetValue], epsilon: float
) -> tuple[Array, Array, Array] | None:
    """Return factor, mean and bias in float64, y = (x - mean) * factor + bias; None if any is not constant."""
    scale, bias, mean, variance = (
        None if each.constant is None else each.constant.astype(np.float64) for each in parameters
    )
    if scale is None or bias is None or mean is None or variance is None:
        return None
    return scale / np.sqrt(variance + epsilon), mean, bias


def check_stash_type(node: NodeView[Any]) -> None:
    """Refuse a normalization whose statistics are computed in another type than float32."""
    if node.attribute("stash_type", 1) != 1:
        node.unsupported("has a stash_type other than float32, in which it is computed")


def scale_axis(node: NodeView[Any], axis: int) -> int:
    """Return the axis along which a node's scales vary, counted from the first."""
    rank: int = node.x.rank
    if not -rank <= axis < rank:
        node.unsupported(f"its axis {axis} is out of range: x has {rank} axes")
    return axis % rank


def block_numbers(node: NodeView[Any], parameter: TargetValue, axis: int, block: int) -> Array:
    """Return for each index along x's axis the number of its block of scales."""
    x = node.x
    if parameter.rank != x.rank or not block:
        node.unsupported(f"its scale has {parameter.rank} axes, x has {x.rank}")
    if x.shape[axis] is None:
        node.unsupported(
            "scales blocks of an axis of open size; fix the size with --shape NAME=... if it is an input's"
        )
    return np.arange(x.shape[axis]) // block
