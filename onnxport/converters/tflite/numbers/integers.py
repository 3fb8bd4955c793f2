"""int32 arithmetic on sizes, bounds and axes that a model computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from onnxport.converters.formulas import IntegerFormula
from onnxport.converters.tflite.broadcasting import COMPARISONS, broadcast, broadcast_shape
from onnxport.converters.tflite.builder import TflBuilder
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value, scalar
from onnxport.core.arrays import Array

_INT32_MAX = np.iinfo(np.int32).max

Operand: TypeAlias = "Integers | int | Sequence[int] | Array"


class Integers(IntegerFormula):
    """A tensor in int32 arithmetic; each operator is one tfl op, numbers and arrays are constants."""

    def __init__(self, tfl: TflBuilder, tensor: Tensor) -> None:
        self.tfl, self.tensor = tfl, tensor

    def binary(self, op: str, other: Operand, /, *, swapped: bool = False) -> Integers:
        operands = [self.tensor, self._tensor(other)]
        if swapped:
            operands.reverse()
        shape = broadcast_shape(*(self.tfl.shape_of(operand) for operand in operands))
        return Integers(self.tfl, self.tfl.op(op, operands, shape, bool if op in COMPARISONS else np.int32))

    def _tensor(self, other: Operand) -> Tensor:
        return other.tensor if isinstance(other, Integers) else self.tfl.int32(np.asarray(other))

    def where(self, then: Operand, otherwise: Operand) -> Integers:
        operands = [self.tensor, self._tensor(then), self._tensor(otherwise)]
        shape = broadcast_shape(*(self.tfl.shape_of(operand) for operand in operands))
        return Integers(self.tfl, self.tfl.op("select_v2", operands, shape))

    def as_numbers(self) -> Integers:
        return Integers(self.tfl, self.tfl.cast(self.tensor, np.int32))

    def summed(self, axis: int) -> Integers:
        shape = self.tfl.shape_of(self.tensor)
        operands = [self.tensor, self.tfl.int32([axis])]
        return Integers(
            self.tfl, self.tfl.op("sum", operands, shape[:axis] + shape[axis + 1 :], keep_dims=False)
        )

    def running_sum(self) -> Integers:
        operands = [self.tensor, self.tfl.int32(0)]
        shape = self.tfl.shape_of(self.tensor)
        return Integers(self.tfl, self.tfl.op("cumsum", operands, shape, exclusive=False, reverse=False))

    def element(self, index: int) -> Integers:
        """Return one element of a vector as a scalar."""
        return Integers(self.tfl, self.tfl.reshape(self.tfl.slice(self.tensor, [index], [1]), ()))

    def column(self) -> Integers:
        return Integers(self.tfl, self.tfl.reshape(self.tensor, (self.tfl.shape_of(self.tensor)[0], 1)))


def integers(tfl: TflBuilder, value: Value) -> Integers:
    """Return an operand as int32; elements beyond its range ("to the end") become its limits."""
    if value.constant is not None:
        return Integers(tfl, tfl.int32(np.clip(value.constant, -_INT32_MAX, _INT32_MAX)))
    if value.dtype == np.int64 and not value.is_size:
        value = broadcast(tfl, "minimum", value, scalar(_INT32_MAX, np.int64))
        value = broadcast(tfl, "maximum", value, scalar(-_INT32_MAX, np.int64))
    return Integers(tfl, tfl.tensor(tfl.converted(value, np.int32)))


def axis_table(tfl: TflBuilder, axes: Value, rank: int) -> Integers:
    """Return [rank, len(axes)]: 1 where `axes` names the row's axis in that column, 0 elsewhere."""
    wrapped = integers(tfl, axes).within(rank)
    rows = Integers(tfl, tfl.int32(np.arange(rank)[:, None]))
    return rows.equals(wrapped).as_numbers()
