"""Recurrent cells (converters/recurrence) in TFLite: their operations, and their steps, unrolled or as a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from onnxport.converters.recurrence import cells
from onnxport.converters.recurrence.cells import Step, advance, unroll
from onnxport.converters.tflite.builder import TflBuilder
from onnxport.converters.tflite.control.functions import emit_loop, nested_value
from onnxport.converters.tflite.formulas import Elements, elu, softplus
from onnxport.converters.tflite.ops.matmul import batch_matmul, matmul
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value, constant

State: TypeAlias = cells.State[Elements]


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
        return times_transposed(tfl, tfl.value(hidden.tensor), matrix)

    def gates(self, total: Elements, count: int) -> list[Elements]:
        tfl = total.tfl
        batch, _ = tfl.shape_of(total.tensor)
        parts = [tfl.slice(total.tensor, [0, i * self.size], [batch, self.size]) for i in range(count)]
        return [Elements(tfl, each) for each in parts]

    def weights(self, beside: Elements, value: Value, place: int | None = None) -> Elements:
        tfl = beside.tfl
        chosen = value if place is None else part(tfl, value, place * self.size, self.size)
        return Elements(tfl, tfl.tensor(chosen))


Direction: TypeAlias = cells.Direction[Cell, Elements, Tensor]
Outcome: TypeAlias = cells.Outcome[Elements, Tensor]


def part(tfl: TflBuilder, value: Value, start: int, size: int) -> Value:
    """Return `size` entries from `start` along the first axis."""
    if value.constant is not None:
        return constant(np.ascontiguousarray(value.constant[start : start + size]))
    if (start, size) == (0, value.shape[0]):
        return value
    rest = value.shape[1:]
    return tfl.value(tfl.slice(tfl.tensor(value), [start, *(0 for _ in rest)], [size, *rest]))


def times_transposed(tfl: TflBuilder, left: Value, matrix: Value) -> Elements:
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


@dataclass(frozen=True)
class Steps:
    """The steps of one recurrent node.

    Attributes:
        lengths: [batch, 1], how many steps each sequence of the batch has, in float32; None if all.
        collects: whether the results of all steps are asked for.
    """

    tfl: TflBuilder
    step: Step
    directions: Sequence[Direction]
    lengths: Tensor | None
    collects: bool

    def unroll(self, count: int) -> list[Outcome]:
        return [self._unroll(direction, count) for direction in self.directions]

    def _unroll(self, direction: Direction, count: int) -> Outcome:
        tfl = self.tfl
        _, batch, width = tfl.shape_of(direction.projected)

        def row(time: int) -> Elements:
            one = tfl.slice(direction.projected, [time, 0, 0], [1, batch, width])
            return Elements(tfl, tfl.without_unit_axis(one, 0))

        lengths = None if self.lengths is None else Elements(tfl, self.lengths)
        state, outputs = unroll(self.step, direction, count, row, lengths)
        if not self.collects:
            return Outcome(None, state)
        return Outcome(tfl.concatenate([tfl.with_unit_axis(each.tensor, 0) for each in outputs]), state)

    # ---- a loop

    def loop(self, count: int | None) -> list[Outcome]:
        """Emit a loop of `count` steps, None if computed. No tensor changes its size: TFLite would allocate anew."""
        tfl = self.tfl
        size = (
            tfl.int32(count)
            if count is not None
            else tfl.reshape(tfl.size(self.directions[0].projected, 0), ())
        )
        carried = [tfl.int32(0)]
        for direction in self.directions:
            carried += [each.tensor for each in direction.initial.parts]
            carried += [self._slots(direction, count)] if self.collects else []
        invariant = [size, *([] if self.lengths is None else [self.lengths])]
        for direction in self.directions:
            invariant += [
                direction.projected,
                *(tfl.tensor(value) for value in direction.cell.run_time_weights()),
            ]

        def goes_on(arguments: list[Tensor]) -> list[Tensor]:
            return [tfl.op("less", [arguments[0], arguments[len(carried)]], (), bool)]

        def body(arguments: list[Tensor]) -> list[Tensor]:
            return self._body(iter(arguments[: len(carried)]), iter(arguments[len(carried) :]))

        typed = [(tensor, tensor.type) for tensor in carried]
        results = iter(emit_loop(tfl, typed, invariant, goes_on, body)[1:])
        outcomes = []
        for direction in self.directions:
            state = self._take_state(direction.initial, results)
            outcomes.append(Outcome(next(results) if self.collects else None, state))
        return outcomes

    def _body(self, carried: Iterator[Tensor], invariant: Iterator[Tensor]) -> list[Tensor]:
        tfl, time, steps = self.tfl, next(carried), next(invariant)
        lengths = None if self.lengths is None else Elements(tfl, next(invariant))
        one = tfl.int32(1)
        following = [tfl.op("add", [time, one], ())]
        for direction in self.directions:
            projected = next(invariant)
            weights = iter(
                [nested_value(value, next(invariant)) for value in direction.cell.run_time_weights()]
            )
            cell = direction.cell.with_run_time_weights(weights)
            now = time
            if direction.is_backwards:
                now = tfl.op("sub", [tfl.op("sub", [steps, one], ()), time], ())
            row = tfl.gather(projected, now)
            left = None if lengths is None else lengths - Elements(tfl, tfl.cast(now, np.float32))
            before = self._take_state(direction.initial, carried)
            after, given = advance(self.step, cell, Elements(tfl, row), before, left)
            following += [each.tensor for each in after.parts]
            if self.collects:
                slots = next(carried)
                place = tfl.concatenate([tfl.reshape(now, [1]), tfl.int32([0, 0])])
                update = tfl.with_unit_axis(given.tensor, 0)
                following.append(tfl.op("dynamic_update_slice", [slots, update, place], tfl.shape_of(slots)))
        return following

    def _take_state(self, like: State, tensors: Iterator[Tensor]) -> State:
        """Return the next tensors as a state of the same parts."""
        return State(*(Elements(self.tfl, next(tensors)) for _ in like.parts))

    def _slots(self, direction: Direction, count: int | None) -> Tensor:
        """Room for the results of all steps."""
        tfl, size = self.tfl, direction.cell.size
        batch = tfl.shape_of(direction.projected)[1]
        sizes = (
            tfl.slice(tfl.sizes(direction.projected), [0], [2])
            if None in (count, batch)
            else tfl.int32([count or 0, batch or 0])
        )
        sizes = tfl.concatenate([sizes, tfl.int32([size])])
        return tfl.op("broadcast_to", [tfl.constant(0, np.float32), sizes], (count, batch, size))
