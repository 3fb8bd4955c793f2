"""Elements by index: gathered, or scattered into a copy.

Up to iOS16 a negative index counts from the end; from iOS17 it is out of bounds. An index out of bounds is an error
with `validate_indices`, else undefined.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.kernels.elementwise_binary import real_div
from onnxport.runtimes.mlprogram.kernels.registry import Call, Flag, Int, kernel


def _within(indices: Array, size: int | Array, call: Call, validate: Flag) -> Array:
    """Check indices; outside of strict mode, clip those out of bounds."""
    wide = indices.astype(np.int64)
    lowest = 0 if call.at_least(7) else np.negative(size)
    outside = (wide < lowest) | (wide >= size)
    if outside.any():
        found = wide[outside][0]
        if validate:
            raise ValueError(f"index {found} of {np.asarray(size).tolist()}, which validate_indices forbids")
        call.undefined(f"index {found} of {np.asarray(size).tolist()}")
        wide = np.clip(wide, lowest, np.asarray(size) - 1)
    return wide  # NumPy too counts negative ones from the end


@kernel("gather")
def gather(
    x: Array, indices: Array, call: Call, axis: Int = 0, batch_dims: Int = 0, validate_indices: Flag = False
) -> Array:
    place, batch = int(axis) % x.ndim, int(batch_dims)
    at = _within(indices, x.shape[place], call, validate_indices)
    if not batch:
        return np.asarray(np.take(x, at, axis=place))
    head = x.shape[:batch]
    rows = x.reshape(-1, *x.shape[batch:])
    chosen = at.reshape(-1, *at.shape[batch:])
    taken = [np.take(row, one, axis=place - batch) for row, one in zip(rows, chosen, strict=True)]
    return np.stack(taken).reshape(*head, *taken[0].shape)


@kernel("gather_along_axis")
def gather_along_axis(
    x: Array, indices: Array, call: Call, axis: Int = 0, validate_indices: Flag = False
) -> Array:
    place = int(axis) % x.ndim
    return np.take_along_axis(x, _within(indices, x.shape[place], call, validate_indices), place)


@kernel("gather_nd")
def gather_nd(
    x: Array, indices: Array, call: Call, batch_dims: Int = 0, validate_indices: Flag = False
) -> Array:
    batch, depth = int(batch_dims), indices.shape[-1]
    at = _within(indices, np.array(x.shape[batch : batch + depth]), call, validate_indices)
    # Each batch axis is indexed by its own position.
    shape = indices.shape[:-1]
    own = [
        np.arange(size).reshape(-1, *(1,) * (len(shape) - axis - 1))
        for axis, size in enumerate(shape[:batch])
    ]
    return np.asarray(x[(*own, *np.moveaxis(at, -1, 0))])


def _scatter(data: Array, place: tuple[Any, ...], updates: Array, mode: str, call: Call) -> Array:
    """Return a copy with `updates` applied, one after the other where an index repeats."""
    changed = data.copy()
    index: Any = place  # NumPy declares less for its `at` than it takes
    if mode == "update":
        changed[place] = updates
    elif mode == "div" and data.dtype.kind != "f":
        divisors = np.ones(data.shape, np.int64)
        np.multiply.at(divisors, index, updates)
        changed = real_div(changed, divisors, call).astype(data.dtype)
    else:
        _UPDATES[mode].at(changed, index, updates)
    return changed


_UPDATES = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
}


@kernel("scatter")
def scatter(
    data: Array,
    indices: Array,
    updates: Array,
    call: Call,
    axis: Int = 0,
    mode: str = "add",
    validate_indices: Flag = False,
) -> Array:
    place = int(axis) % data.ndim
    at = _within(indices, data.shape[place], call, validate_indices)
    return _scatter(data, (*(slice(None),) * place, at), updates, mode, call)


@kernel("scatter_along_axis")
def scatter_along_axis(
    data: Array,
    indices: Array,
    updates: Array,
    call: Call,
    axis: Int = 0,
    mode: str = "add",
    validate_indices: Flag = False,
) -> Array:
    place = int(axis) % data.ndim
    at: list[Array] = list(np.ogrid[tuple(slice(size) for size in indices.shape)])
    at[place] = _within(indices, data.shape[place], call, validate_indices)
    return _scatter(data, tuple(at), updates, mode, call)


@kernel("scatter_nd")
def scatter_nd(
    data: Array, indices: Array, updates: Array, call: Call, mode: str = "add", validate_indices: Flag = False
) -> Array:
    at = _within(indices, np.array(data.shape[: indices.shape[-1]]), call, validate_indices)
    return _scatter(data, tuple(np.moveaxis(at, -1, 0)), updates, mode, call)
