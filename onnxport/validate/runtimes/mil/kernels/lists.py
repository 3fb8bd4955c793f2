"""Lists of tensors of one shape, which loops write: values like any other, so that writing gives another list."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxport.validate.runtimes.mil.registry import Array, Call, Undefined, kernel

List = tuple[Array | None, ...]  # None where nothing was written


@kernel("make_list")
def make_list(
    elem_shape: Any = (), init_length: Any = 1, dynamic_length: Any = True, dtype: str = "fp32"
) -> List:
    return (None,) * int(init_length)


@kernel("list_length")
def list_length(ls: List) -> Array:
    return np.asarray(len(ls), np.int32)


@kernel("list_write")
def list_write(ls: List, index: Array, value: Array, call: Call) -> List:
    return _written(ls, [int(index)], [value], call)


@kernel("list_scatter")
def list_scatter(ls: List, indices: Array, value: Array, call: Call) -> List:
    return _written(ls, [int(index) for index in indices], list(value), call)


@kernel("list_read")
def list_read(ls: List, index: Array, call: Call) -> Array:
    return _read(ls, int(index), call)


@kernel("list_gather")
def list_gather(ls: List, indices: Array, call: Call) -> Array:
    if not indices.size:
        raise Undefined("list_gather of no elements: MIL has no tensor without elements")
    return np.stack([_read(ls, int(index), call) for index in indices])


def _written(ls: List, indices: list[int], values: list[Array], call: Call) -> List:
    """A list grows to hold what is written beyond its end."""
    if min(indices) < 0:
        raise Undefined(f"{call.operation.type} at {min(indices)}, before the list's first element")
    found = [*ls, *[None] * (max(indices) + 1 - len(ls))]
    for index, value in zip(indices, values, strict=True):
        found[index] = np.array(value)
    return tuple(found)


def _read(ls: List, index: int, call: Call) -> Array:
    element = ls[index] if 0 <= index < len(ls) else None
    if element is None:
        raise Undefined(f"{call.operation.type} of element {index}, which was not written")
    return element
