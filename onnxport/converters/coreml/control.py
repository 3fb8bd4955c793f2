"""Blocks of If and Loop: own variables of types that do not depend on known numbers, and rows that a loop collects."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder, MilNode, MilType, NoMil, wrap
from onnxport.converters.coreml.library import Var, get_new_symbol, mb, types
from onnxport.converters.coreml.values import LARGEST_RANK, Value

# Most slots to make for steps that may not happen.
_MANY = 10_000


def emit_variable(mil: MilBuilder, op: str, **parameters: Any) -> Var:
    """Emit `op` and return its variable, whose number MIL must not know."""
    var = mil.emit(op, **parameters).var
    if var.op is not None and var.op.op_type == "const":  # the builder folds constants
        var = mb.identity(x=var, name=mil.inner_name("identity"))
    var._sym_val = None
    return var


def block_result(mil: MilBuilder, value: Value, type_: MilType | None = None) -> Var:
    """Return `value` as a block's result: an own variable, whose number MIL must not know.

    Constants and values from around the block get a copy. MIL compares what it knows of the numbers at both ends of a
    loop, and would take the first step's for those of all.
    """
    return emit_variable(mil, "identity", x=mil.var(value, type_))


def declare_open(var: Var, shape: tuple[int | None, ...]) -> None:
    """Declare a block's input open where `shape` is, and its number unknown."""
    var._sym_val = None
    if None in shape:
        dims = [get_new_symbol() if ours is None else dim for ours, dim in zip(shape, var.shape, strict=True)]
        var._sym_type = types.tensor(var.dtype, dims)


def check_carried(node: MilNode, value: Value, name: str | None) -> None:
    """Refuse a result that no MIL block returns."""
    if 0 in value.shape:
        node.unsupported(f"returns {name!r} empty, and Core ML has no empty tensors")


def make_rows(
    mil: MilBuilder, shape: tuple[int | None, ...], dtype: np.dtype[Any], steps: Var | int | None
) -> Slots | RowList:
    """Return a collector for one tensor of `shape` per step; `steps` is their largest number, if known.

    Raises:
        NoMil: rows with so many axes that MIL has no tensor of them.
    """
    if len(shape) >= LARGEST_RANK:
        raise NoMil(f"collects tensors of {len(shape)} axes, and MIL's have {LARGEST_RANK} at most")
    sizes = [dim for dim in shape if dim is not None]
    type_ = mil.mil_type(dtype)
    if len(sizes) < len(shape) or steps is None or (isinstance(steps, int) and steps > _MANY):
        return RowList(mil, shape, dtype, type_)
    return Slots(mil, sizes, dtype, "int32" if type_ == "bool" else type_, steps)


class Slots:
    """Rows in one carried tensor that has a slot for each."""

    def __init__(
        self, mil: MilBuilder, shape: list[int], dtype: np.dtype[Any], type_: MilType, steps: Var | int
    ) -> None:
        self._mil, self._shape, self._dtype, self._type, self._steps = mil, shape, dtype, type_, steps

    def start(self) -> Var:
        zero = np.array(0, {"fp16": np.float16, "fp32": np.float32, "int32": np.int32}[self._type])[()]
        if isinstance(self._steps, int):
            room: Any = np.array([self._steps, *self._shape], np.int32)
        else:
            room = self._with_row_sizes(self._steps)
        return emit_variable(self._mil, "fill", shape=room, value=zero)

    def add(self, carried: Var, row: Value, step: Var) -> Var:
        mil = self._mil
        held = wrap(mil.var(row, self._type))  # bools go as integers, which MIL's scatter takes
        held.dtype = np.dtype(np.int32) if self._type == "int32" else row.dtype
        update = emit_variable(mil, "expand_dims", x=held, axes=[0])
        place = emit_variable(mil, "expand_dims", x=step, axes=[0])
        return emit_variable(
            mil, "scatter", data=carried, indices=place, updates=update, axis=0, mode="update"
        )

    def finish(self, carried: Var, steps: Var, *, may_stop: bool) -> Value:
        """Return the rows; `may_stop` if `steps`, their number, may be below the number of slots."""
        mil = self._mil
        slots = wrap(carried, self._dtype)
        if may_stop:
            end = self._with_row_sizes(steps)
            slots = mil.slice_by_index(x=carried, begin=[0] * (1 + len(self._shape)), end=end)
        if self._dtype.kind == "b":
            slots = wrap(emit_variable(mil, "cast", x=mil.var(slots, "int32"), dtype="bool"))
        return slots

    def _with_row_sizes(self, count: Var) -> Var | Value:
        """Return the shape of `count` rows."""
        first = emit_variable(self._mil, "expand_dims", x=count, axes=[0])
        if not self._shape:
            return first
        return self._mil.concat(values=[first, np.array(self._shape, np.int32)], axis=0)


class RowList:
    """Rows of a number or size known at run time only, in a MIL list."""

    def __init__(
        self, mil: MilBuilder, shape: tuple[int | None, ...], dtype: np.dtype[Any], type_: MilType
    ) -> None:
        self._mil, self._dtype, self._type = mil, dtype, type_
        self._is_scalar = not shape  # a list's elements have an axis at least
        self._shape = shape or (1,)

    def start(self) -> Var:
        name = self._mil.inner_name("make_list")
        sizes = tuple(f"{name}_{axis}" if dim is None else dim for axis, dim in enumerate(self._shape))
        # Not through MilBuilder.emit, for which a tuple is an array.
        return mb.make_list(init_length=1, dynamic_length=True, elem_shape=sizes, dtype=self._type, name=name)

    def add(self, carried: Var, row: Value, step: Var) -> Var:
        mil = self._mil
        value = block_result(mil, row, self._type)
        if self._is_scalar:
            value = emit_variable(mil, "expand_dims", x=value, axes=[0])
        return emit_variable(mil, "list_write", ls=carried, index=step, value=value)

    def finish(self, carried: Var, steps: Var, *, may_stop: bool) -> Value:
        """Return the rows."""
        mil = self._mil
        places = emit_variable(mil, "range_1d", start=0, end=steps, step=1)
        gathered = wrap(emit_variable(mil, "list_gather", ls=carried, indices=places), self._dtype)
        return mil.squeeze(x=gathered, axes=[1]) if self._is_scalar else gathered
