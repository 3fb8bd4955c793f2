"""Operators beyond tensors: blocks, states, lists of tensors (each write returns a new list), and classify."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.kernels.registry import Call, Flag, Int, Undefined, kernel, register


@kernel("cond")
def cond(pred: Array, call: Call) -> tuple[Any, ...]:
    then, otherwise = call.operation.blocks
    return tuple(call.run(then if pred.all() else otherwise, ()))


@kernel("while_loop")
def while_loop(loop_vars: Sequence[Any], call: Call) -> tuple[Any, ...]:
    condition, body = call.operation.blocks
    values = list(loop_vars)
    while call.run(condition, values)[0].all():
        values = call.run(body, values)
    return tuple(values)


register(
    {
        "list_length": lambda ls: np.asarray(len(ls.elements), np.int32),
        "list_read": lambda ls, index: _read(ls, _number(index)),
        "list_write": lambda ls, index, value: _write(ls, {_number(index): value}),
        "read_state": lambda input: input.read(),
        "write_state": lambda input, data: input.write(data),
    }
)


@dataclass(frozen=True)
class TensorList:
    """Elements by number; None for one that was never written."""

    elements: tuple[Array | None, ...]
    grows: bool


@kernel("make_list")
def make_list(
    elem_shape: object = None, init_length: Int = 1, dynamic_length: Flag = True, dtype: str = "fp32"
) -> TensorList:
    return TensorList((None,) * int(init_length), bool(dynamic_length))


@kernel("list_scatter")
def list_scatter(ls: TensorList, indices: Array, value: Array, call: Call) -> TensorList:
    numbers = [_number(each) for each in np.ravel(indices)]
    if call.strict and len(set(numbers)) < len(numbers):
        raise Undefined("list_scatter that writes one element twice")
    return _write(ls, dict(zip(numbers, value, strict=True)))


@kernel("list_gather")
def list_gather(ls: TensorList, indices: Array) -> Array:
    if not indices.size:
        raise Undefined("list_gather of no elements: MIL has no empty tensors")
    return np.stack([_read(ls, _number(each)) for each in np.ravel(indices)])


def _number(index: Array) -> int:
    number = int(np.ravel(index)[0])
    if number < 0:
        raise Undefined(f"a list's element {number}")
    return number


def _write(ls: TensorList, new: dict[int, Array]) -> TensorList:
    elements = list(ls.elements)
    length = max(len(elements), 1 + max(new, default=-1))
    if length > len(elements) and not ls.grows:
        raise Undefined(f"element {length - 1} written to a list of the fixed length {len(elements)}")
    elements += [None] * (length - len(elements))
    for number, value in new.items():
        elements[number] = np.asarray(value)
    return TensorList(tuple(elements), ls.grows)


def _read(ls: TensorList, number: int) -> Array:
    if number >= len(ls.elements):
        raise Undefined(f"element {number} of a list of length {len(ls.elements)}")
    element = ls.elements[number]
    if element is None:
        raise Undefined(f"element {number} of a list was never written")
    return element


@kernel("classify")
def classify(probabilities: Array, classes: Array | Sequence[Any]) -> tuple[Any, dict[Any, float]]:
    numbers = np.ravel(probabilities)
    labels = [each.item() if hasattr(each, "item") else each for each in classes]
    return labels[int(numbers.argmax())], dict(zip(labels, map(float, numbers), strict=True))
