"""Arithmetic on small integers at run time: sizes, bounds and axes that a model computes, one tfl op each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from onnxport.converters.tflite.broadcasting import broadcast, broadcast_shape
from onnxport.converters.tflite.builder import TflBuilder
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value, scalar
from onnxport.core.arrays import Array

_INT32_MAX = np.iinfo(np.int32).max

Operand: TypeAlias = "Integers | int | Sequence[int] | Array"


class Integers:
    """The int32 elements of one tensor under a formula; numbers and arrays stand for constants."""

    def __init__(self, tfl: TflBuilder, tensor: Tensor) -> None:
        self.tfl, self.tensor = tfl, tensor

    def _call(self, name: str, other: Operand, dtype: type = np.int32) -> Integers:
        operands = [self.tensor, self._tensor(other)]
        shape = broadcast_shape(*(self.tfl.shape_of(operand) for operand in operands))
        return Integers(self.tfl, self.tfl.op(name, operands, shape, dtype))

    def _tensor(self, other: Operand) -> Tensor:
        return other.tensor if isinstance(other, Integers) else self.tfl.int32(np.asarray(other))

    def __add__(self, other: Operand) -> Integers:
        return self._call("add", other)

    def __sub__(self, other: Operand) -> Integers:
        return self._call("sub", other)

    def __mul__(self, other: Operand) -> Integers:
        return self._call("mul", other)

    def __lt__(self, other: Operand) -> Integers:
        return self._call("less", other, bool)

    def equals(self, other: Operand) -> Integers:
        return self._call("equal", other, bool)

    def maximum(self, other: Operand) -> Integers:
        return self._call("maximum", other)

    def minimum(self, other: Operand) -> Integers:
        return self._call("minimum", other)

    def where(self, then: Operand, otherwise: Operand) -> Integers:
        """For conditions: `then` where they hold, `otherwise` elsewhere."""
        operands = [self.tensor, self._tensor(then), self._tensor(otherwise)]
        shape = broadcast_shape(*(self.tfl.shape_of(operand) for operand in operands))
        return Integers(self.tfl, self.tfl.op("select_v2", operands, shape))

    def as_numbers(self) -> Integers:
        """For conditions: 1 where they hold, 0 elsewhere."""
        return Integers(self.tfl, self.tfl.cast(self.tensor, np.int32))

    def summed(self, axis: int) -> Integers:
        shape = self.tfl.shape_of(self.tensor)
        operands = [self.tensor, self.tfl.int32([axis])]
        return Integers(
            self.tfl, self.tfl.op("sum", operands, shape[:axis] + shape[axis + 1 :], keep_dims=False)
        )

    def running_sum(self) -> Integers:
        """Of a vector: the sum of the elements up to each."""
        operands = [self.tensor, self.tfl.int32(0)]
        shape = self.tfl.shape_of(self.tensor)
        return Integers(self.tfl, self.tfl.op("cumsum", operands, shape, exclusive=False, reverse=False))

    def element(self, index: int) -> Integers:
        """Of a vector: one element as a scalar."""
        return Integers(self.tfl, self.tfl.reshape(self.tfl.slice(self.tensor, [index], [1]), ()))

    def column(self) -> Integers:
        """A vector as the column of a matrix."""
        return Integers(self.tfl, self.tfl.reshape(self.tensor, (self.tfl.shape_of(self.tensor)[0], 1)))


def integers(tfl: TflBuilder, value: Value) -> Integers:
    """An operand's elements as int32: what lies beyond its range ("to the end") becomes its limit."""
    if value.constant is not None:
        return Integers(tfl, tfl.int32(np.clip(value.constant, -_INT32_MAX, _INT32_MAX)))
    if value.dtype == np.int64 and not value.is_size:
        value = broadcast(tfl, "minimum", value, scalar(_INT32_MAX, np.int64))
        value = broadcast(tfl, "maximum", value, scalar(-_INT32_MAX, np.int64))
    return Integers(tfl, tfl.tensor(tfl.converted(value, np.int32)))


def axis_table(tfl: TflBuilder, axes: Value, rank: int) -> Integers:
    """[rank, len(axes)]: 1 where an axis (row) is the one that `axes` names there, 0 elsewhere."""
    named = integers(tfl, axes)
    wrapped = (named < 0).where(named + rank, named)
    rows = Integers(tfl, tfl.int32(np.arange(rank)[:, None]))
    return rows.equals(wrapped).as_numbers()
