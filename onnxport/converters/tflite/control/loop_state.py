"""The tensors that a loop carries from step to step: state, and collected rows.

TFLite's WHILE carries tensors that grow, but none without elements, and allocates its body anew at each step when a
tensor in it changes its size. So empty state gets an element that is cut off again, and rows of a known number go
into slots made beforehand.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from litert_converter.mlir import ir

from onnxport.converters.tflite.builder import TflBuilder
from onnxport.converters.tflite.kernels import NoKernel, carrier
from onnxport.converters.tflite.layout import Shape
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value

Carried = tuple[Tensor, ir.Type]


class State:
    """A value that each step replaces by another of the same rank; `shape` is None where a dimension may change."""

    def __init__(self, tfl: TflBuilder, initial: Value, shape: Shape) -> None:
        self._tfl, self._initial, self._shape = tfl, initial, shape
        self._extra = [int(dim == 0) for dim in initial.shape]

    def start(self) -> Carried:
        shape = [None if dim is None else dim + e for dim, e in zip(self._shape, self._extra, strict=True)]
        if self._initial.constant is not None and any(self._extra):
            padding = [(extra, 0) for extra in self._extra]
            tensor = self._tfl.constant(np.pad(self._initial.constant, padding))
        else:
            tensor = self._pad(self._tfl.tensor(self._initial))
        return tensor, self._tfl.tensor_type(shape, self._tfl.dtype_of(tensor))

    def value(self, carried: Tensor) -> Value:
        """Return the state before a step, or after the last one."""
        if not any(self._extra):
            return self._tfl.value(carried)
        shape = [None if extra else dim for dim, extra in zip(self._shape, self._extra, strict=True)]
        return self._tfl.value(self._tfl.crop(carried, self._extra, [0] * len(shape), shape))

    def carry(self, value: Value) -> Tensor:
        """Return the tensor that a step hands to the next."""
        return self._pad(self._tfl.tensor(value))

    def _pad(self, tensor: Tensor) -> Tensor:
        return self._tfl.pad(tensor, self._extra, [0] * len(self._extra))


class Rows(ABC):
    """A collector of one tensor of `shape` per step, stacked along a new first axis."""

    operator = "concatenation"  # that adds a row

    def __init__(self, tfl: TflBuilder, shape: Shape, dtype: np.dtype[np.generic]) -> None:
        self._tfl, self._shape, self._dtype = tfl, shape, dtype
        self._stored = _storage_dtype(self.operator, dtype)

    @abstractmethod
    def start(self) -> list[Carried]: ...

    @abstractmethod
    def add(self, carried: list[Tensor], row: Value, step: Tensor) -> list[Tensor]:
        """Add a row; `step` is the step's number, an int32 scalar."""

    @abstractmethod
    def finish(self, carried: list[Tensor], steps: Tensor) -> Tensor:
        """Return the rows; `steps` is their number, an int32 scalar."""

    def _stored_row(self, row: Value, shape: Shape) -> Tensor:
        return self._tfl.cast(self._tfl.reshape(self._tfl.tensor(row), shape), self._stored)

    def _without_first(self, rows: Tensor) -> Tensor:
        _, *sizes = self._tfl.shape_of(rows)
        nothing = [0] * len(sizes)
        rows = self._tfl.crop(rows, [1, *nothing], [0, *nothing], (None, *sizes))
        return self._tfl.cast(rows, self._dtype)


def make_rows(tfl: TflBuilder, shape: Shape, dtype: np.dtype[np.generic], steps: int | Tensor | None) -> Rows:
    """Return a collector for rows of `shape`; `steps` is their number, an int32 scalar if computed, None if unknown."""
    if None in shape:
        return _OpenRows(tfl, shape, dtype)
    if steps is None or steps == 0 or 0 in shape:
        return _GrowingRows(tfl, shape, dtype)
    return _Slots(tfl, shape, dtype, steps)


class _Slots(Rows):
    """Slots for a known number of rows."""

    operator = "dynamic_update_slice"

    def __init__(
        self, tfl: TflBuilder, shape: Shape, dtype: np.dtype[np.generic], steps: int | Tensor
    ) -> None:
        super().__init__(tfl, shape, dtype)
        self._steps, self._sizes = steps, [dim or 0 for dim in shape]

    def start(self) -> list[Carried]:
        tfl = self._tfl
        zero = tfl.constant(np.zeros((), self._stored))
        if isinstance(self._steps, int):
            sizes, steps = tfl.int32([self._steps, *self._sizes]), self._steps
        else:
            # A tensor without elements cannot be carried.
            count = tfl.op("maximum", [tfl.reshape(self._steps, [1]), tfl.int32([1])], [1])
            sizes, steps = _concatenate(tfl, [count, tfl.int32(self._sizes)]), None
        tensor = tfl.op("broadcast_to", [zero, sizes], (steps, *self._shape))
        return [(tensor, tensor.type)]

    def add(self, carried: list[Tensor], row: Value, step: Tensor) -> list[Tensor]:
        tfl, (slots,) = self._tfl, carried
        update = self._stored_row(row, (1, *self._shape))
        start = _concatenate(tfl, [tfl.reshape(step, [1]), tfl.int32([0] * len(self._shape))])
        return [tfl.op("dynamic_update_slice", [slots, update, start], tfl.shape_of(slots))]

    def finish(self, carried: list[Tensor], steps: Tensor) -> Tensor:
        tfl, (slots,) = self._tfl, carried
        if not isinstance(self._steps, int):
            sizes = _concatenate(tfl, [tfl.reshape(steps, [1]), tfl.int32(self._sizes)])
            begin = tfl.int32([0] * (1 + len(self._shape)))
            slots = tfl.op("slice", [slots, begin, sizes], (None, *self._shape))
        return tfl.cast(slots, self._dtype)


class _GrowingRows(Rows):
    """Rows of one size, appended to those before."""

    def start(self) -> list[Carried]:
        first = self._tfl.constant(np.zeros((1, *(dim or 0 for dim in self._shape)), self._stored))
        return [(first, self._tfl.tensor_type((None, *self._shape), self._stored))]

    def add(self, carried: list[Tensor], row: Value, step: Tensor) -> list[Tensor]:
        tensors = [carried[0], self._stored_row(row, (1, *self._shape))]
        return [self._tfl.op("concatenation", tensors, (None, *self._shape), axis=0)]

    def finish(self, carried: list[Tensor], steps: Tensor) -> Tensor:
        return self._without_first(carried[0])


class _OpenRows(Rows):
    """Rows of a size known at run time only: all elements in one vector, and the size."""

    def start(self) -> list[Carried]:
        tfl = self._tfl
        first, sizes = tfl.constant(np.zeros(1, self._stored)), tfl.int32([dim or 0 for dim in self._shape])
        return [(first, tfl.tensor_type((None,), self._stored)), (sizes, sizes.type)]

    def add(self, carried: list[Tensor], row: Value, step: Tensor) -> list[Tensor]:
        tensors = [carried[0], self._stored_row(row, (None,))]
        joined = self._tfl.op("concatenation", tensors, (None,), axis=0)
        return [joined, self._tfl.run_time_shape(row)]

    def finish(self, carried: list[Tensor], steps: Tensor) -> Tensor:
        tfl, (flat, sizes) = self._tfl, carried
        elements = self._without_first(flat)
        shape = _concatenate(tfl, [tfl.reshape(steps, [1]), sizes])
        return tfl.op("reshape", [elements, shape], (None, *self._shape))


def _storage_dtype(op: str, dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """Return the type of rows in `op`, so that it does not convert all of them at each step; NoKernel if none."""
    if dtype == np.float64:
        return np.dtype(np.float32)  # in which it is computed
    wider = carrier(op, [dtype])
    if wider is not None and wider.how != "value":
        raise NoKernel(f"TFLite's loops collect no {dtype}")
    return dtype if wider is None else np.dtype(wider.dtype)


def _concatenate(tfl: TflBuilder, parts: list[Tensor]) -> Tensor:
    """Concatenate sizes of axes, some of which may be none."""
    return tfl.concatenate([part for part in parts if tfl.shape_of(part) != (0,)])
