"""Recurrent cells (converters/recurrence) in TFLite."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from onnxport.converters.recurrence import cells
from onnxport.converters.tflite.builder import TflBuilder
from onnxport.converters.tflite.formulas import Elements, elu, softplus
from onnxport.converters.tflite.ops.matmul import batch_matmul, matmul
from onnxport.converters.tflite.values import Value, constant


class Cell(cells.Cell[Elements, Value]):
    """Its weights are float32."""

    def run_time_weights(self) -> list[Value]:
        """Return the weights that are no constants."""
        weights = (self.recurrence, self.candidate_bias, self.peepholes)
        return [value for value in weights if value is not None and value.constant is None]

    def with_run_time_weights(self, values: Iterator[Value]) -> Cell:
        """Return the cell with other values in place of `run_time_weights()`."""

        def other(value: Value | None) -> Value | None:
            return value if value is None or value.constant is not None else next(values)

        recurrence = other(self.recurrence)
        assert recurrence is not None
        bias, peepholes = other(self.candidate_bias), other(self.peepholes)
        return Cell(self.size, recurrence, bias, peepholes, self.activations, self.clip, self.couples_gates)

    def recurrent(self, hidden: Elements, first: int, count: int) -> Elements:
        tfl = hidden.tfl
        matrix = part(tfl, self.recurrence, first * self.size, count * self.size)
        return multiply_transposed(tfl, tfl.value(hidden.tensor), matrix)

    def gates(self, total: Elements, count: int) -> list[Elements]:
        tfl = total.tfl
        batch, _ = tfl.shape_of(total.tensor)
        parts = [tfl.slice(total.tensor, [0, i * self.size], [batch, self.size]) for i in range(count)]
        return [Elements(tfl, each) for each in parts]

    def weights(self, beside: Elements, value: Value, place: int | None = None) -> Elements:
        tfl = beside.tfl
        chosen = value if place is None else part(tfl, value, place * self.size, self.size)
        return Elements(tfl, tfl.tensor(chosen))


def part(tfl: TflBuilder, value: Value, start: int, size: int) -> Value:
    """Return `size` entries from `start` along the first axis."""
    if value.constant is not None:
        return constant(np.ascontiguousarray(value.constant[start : start + size]))
    if (start, size) == (0, value.shape[0]):
        return value
    rest = value.shape[1:]
    return tfl.value(tfl.slice(tfl.tensor(value), [start, *(0 for _ in rest)], [size, *rest]))


def multiply_transposed(tfl: TflBuilder, left: Value, matrix: Value) -> Elements:
    """Return `left` times the transposed matrix."""
    if matrix.constant is None:
        return Elements(tfl, batch_matmul(tfl, left, matrix, adjoint_b=True))
    return Elements(tfl, tfl.tensor(matmul(tfl, left, constant(np.ascontiguousarray(matrix.constant.T)))))


# See recurrence/activations.py.
ACTIVATIONS: dict[str, Callable[..., Elements]] = {
    "elu": elu,
    "sigmoid": lambda x: x.call("logistic"),
    "softplus": softplus,
}
