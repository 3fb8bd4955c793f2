"""Sorted, chosen and found."""

from __future__ import annotations

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.registry import Call, kernel


def _order(x: Array, axis: int, ascending: bool) -> Array:
    """Positions in order; of equals the first comes first, which documentation leaves open."""
    if ascending:
        return np.asarray(np.argsort(x, axis=axis, kind="stable"))
    # Not of -x: that overflows at the lowest integer, and is no smaller number of an unsigned one.
    turned = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return np.asarray(x.shape[axis] - 1 - np.flip(turned, axis))


@kernel("argsort")
def argsort(x: Array, axis: Array | int = -1, ascending: Array | bool = False) -> Array:
    return _order(x, int(axis), bool(ascending))


@kernel("topk")
def topk(
    x: Array,
    k: Array | int = 1,
    axis: Array | int = -1,
    ascending: Array | bool = False,
    sort: Array | bool = True,
    return_indices: Array | bool = True,
    output_indices_dtype: str = "int32",
) -> tuple[Array, ...]:
    """Sorted even where `sort` does not ask for it: then any order is right."""
    place = int(axis) % x.ndim
    count = x.shape[place] if int(k) == -1 else int(k)
    if count > x.shape[place]:
        raise ValueError(f"the first {count} of {x.shape[place]}")
    at = np.take(_order(x, place, bool(ascending)), np.arange(count), axis=place)
    values = np.take_along_axis(x, at, place)
    return (values, at) if return_indices else (values,)


@kernel("non_zero")
def non_zero(x: Array) -> Array:
    return np.argwhere(x)


@kernel("one_hot")
def one_hot(
    indices: Array,
    one_hot_vector_size: Array,
    call: Call,
    axis: Array | int = -1,
    on_value: Array | int = 1,
    off_value: Array | int = 0,
) -> Array:
    size = int(one_hot_vector_size.reshape(()))
    if ((indices < 0) | (indices >= size)).any():
        call.undefined(f"indices outside of vectors of {size}")
    place = int(axis) % (indices.ndim + 1)
    shape = [1] * (indices.ndim + 1)
    shape[place] = size
    hot = np.expand_dims(indices, place) == np.arange(size).reshape(shape)
    return np.where(hot, on_value, off_value)


@kernel("cumsum")
def cumsum(
    x: Array, axis: Array | int = 0, exclusive: Array | bool = False, reverse: Array | bool = False
) -> Array:
    place = int(axis) % x.ndim
    turned = np.flip(x, place) if reverse else x
    summed = np.cumsum(turned, axis=place, dtype=x.dtype)
    if exclusive:
        before = np.take(summed, np.arange(x.shape[place] - 1), axis=place)
        first = np.zeros_like(np.take(summed, [0], axis=place))
        summed = np.concatenate([first, before], axis=place)
    return np.flip(summed, place) if reverse else summed
