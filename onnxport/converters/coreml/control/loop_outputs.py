"""Rows that a loop collects: a tensor of each step, stacked along a new first axis."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder, MilType, NoMil, wrap
from onnxport.converters.coreml.control.blocks import block_result, emit_variable
from onnxport.converters.coreml.library import Var, mb
from onnxport.converters.coreml.values import Value

_LARGEST_RANK = 5
# Most slots to make for steps that may not happen.
_MANY = 10_000


class Rows(Protocol):
    """A collector of one tensor per step in one carried variable."""

    def start(self) -> list[Var]: ...

    def add(self, carried: Var, row: Value, step: Var) -> Var: ...

    def finish(self, carried: Var, steps: Var, *, may_stop: bool) -> Value:
        """Return the rows; `may_stop` if `steps`, their number, may be below the number of slots."""
        ...


def make_rows(
    mil: MilBuilder, shape: tuple[int | None, ...], dtype: np.dtype[Any], steps: Var | int | None
) -> Rows:
    """Return a collector for rows of `shape`; `steps` is the largest number of rows, if known.

    Raises:
        NoMil: rows with so many axes that MIL has no tensor of them.
    """
    if len(shape) >= _LARGEST_RANK:
        raise NoMil(f"collects tensors of {len(shape)} axes, and MIL's have {_LARGEST_RANK} at most")
    sizes = [dim for dim in shape if dim is not None]
    type_ = mil.mil_type(dtype)
    if len(sizes) < len(shape) or steps is None or (isinstance(steps, int) and steps > _MANY):
        return _List(mil, shape, dtype, type_)
    return _Slots(mil, sizes, dtype, "int32" if type_ == "bool" else type_, steps)


class _Slots:
    """Slots for all rows."""

    def __init__(
        self, mil: MilBuilder, shape: list[int], dtype: np.dtype[Any], type_: MilType, steps: Var | int
    ) -> None:
        self._mil, self._shape, self._dtype, self._type, self._steps = mil, shape, dtype, type_, steps

    def start(self) -> list[Var]:
        mil = self._mil
        zero = np.array(0, {"fp16": np.float16, "fp32": np.float32, "int32": np.int32}[self._type])[()]
        if isinstance(self._steps, int):
            room: Any = np.array([self._steps, *self._shape], np.int32)
        else:
            count = emit_variable(mil, "expand_dims", x=self._steps, axes=[0])
            tail = np.array(self._shape, np.int32)
            room = count if not self._shape else mil.concat(values=[count, tail], axis=0)
        return [emit_variable(mil, "fill", shape=room, value=zero)]

    def add(self, carried: Var, row: Value, step: Var) -> Var:
        mil = self._mil
        update = emit_variable(mil, "expand_dims", x=mil.var(_cast(mil, row, self._type)), axes=[0])
        place = emit_variable(mil, "expand_dims", x=step, axes=[0])
        return emit_variable(
            mil, "scatter", data=carried, indices=place, updates=update, axis=0, mode="update"
        )

    def finish(self, carried: Var, steps: Var, *, may_stop: bool) -> Value:
        mil = self._mil
        slots = wrap(carried)
        slots.dtype = self._dtype
        if may_stop:
            end = emit_variable(mil, "expand_dims", x=steps, axes=[0])
            if self._shape:
                end = mil.concat(values=[end, np.array(self._shape, np.int32)], axis=0)
            slots = mil.slice_by_index(x=carried, begin=[0] * (1 + len(self._shape)), end=end)
        if self._dtype.kind == "b":
            slots = wrap(emit_variable(mil, "cast", x=mil.var(slots, "int32"), dtype="bool"))
        return slots


class _List:
    """Rows of a number or size known at run time only, in a MIL list."""

    def __init__(
        self, mil: MilBuilder, shape: tuple[int | None, ...], dtype: np.dtype[Any], type_: MilType
    ) -> None:
        self._mil, self._dtype, self._type = mil, dtype, type_
        self._is_scalar = not shape  # a list's elements have an axis at least
        self._shape = shape or (1,)

    def start(self) -> list[Var]:
        name = self._mil.inner_name("make_list")
        sizes = tuple(f"{name}_{axis}" if dim is None else dim for axis, dim in enumerate(self._shape))
        # Not through MilBuilder.emit, for which a tuple is an array.
        return [
            mb.make_list(init_length=1, dynamic_length=True, elem_shape=sizes, dtype=self._type, name=name)
        ]

    def add(self, carried: Var, row: Value, step: Var) -> Var:
        mil = self._mil
        value = block_result(mil, row, self._type)
        if self._is_scalar:
            value = emit_variable(mil, "expand_dims", x=value, axes=[0])
        return emit_variable(mil, "list_write", ls=carried, index=step, value=value)

    def finish(self, carried: Var, steps: Var, *, may_stop: bool) -> Value:
        mil = self._mil
        places = emit_variable(mil, "range_1d", start=0, end=steps, step=1)
        gathered = wrap(emit_variable(mil, "list_gather", ls=carried, indices=places))
        gathered.dtype = self._dtype
        if not self._is_scalar:
            return gathered
        flat: Value = mil.squeeze(x=gathered, axes=[1])
        return flat


def _cast(mil: MilBuilder, value: Value, type_: MilType) -> Value:
    """Return a row as its slots hold it: bools go as integers, which MIL's scatter takes."""
    made = wrap(mil.var(value, type_))
    made.dtype = np.dtype(np.int32) if type_ == "int32" else value.dtype
    return made
