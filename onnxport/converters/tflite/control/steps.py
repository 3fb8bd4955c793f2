"""The steps of recurrent cells over time: one after another in the graph, or a loop with one step as its body."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from onnxport.converters.recurrence.cells import Step, advance
from onnxport.converters.tflite.builder import TflBuilder
from onnxport.converters.tflite.control.captures import nested_value
from onnxport.converters.tflite.control.cells import Direction, Outcome, State
from onnxport.converters.tflite.control.functions import emit_loop
from onnxport.converters.tflite.elements import Elements
from onnxport.converters.tflite.tensors import Tensor


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

    def unrolled(self, count: int) -> list[Outcome]:
        return [self._unrolled(direction, count) for direction in self.directions]

    def _unrolled(self, direction: Direction, count: int) -> Outcome:
        tfl, state, rows = self.tfl, direction.initial, {}
        _, batch, width = tfl.shape_of(direction.projected)
        for time in reversed(range(count)) if direction.is_backwards else range(count):
            row = tfl.without_unit_axis(tfl.slice(direction.projected, [time, 0, 0], [1, batch, width]), 0)
            left = None if self.lengths is None else Elements(tfl, self.lengths) - float(time)
            state, rows[time] = advance(self.step, direction.cell, Elements(tfl, row), state, left)
        if not self.collects:
            return Outcome(None, state)
        tensors = [tfl.with_unit_axis(rows[time].tensor, 0) for time in range(count)]
        shape = (count, *tfl.shape_of(tensors[0])[1:])
        together = tensors[0] if count == 1 else tfl.op("concatenation", tensors, shape, axis=0)
        return Outcome(together, state)

    # ---- a loop

    def looped(self, count: int | None) -> list[Outcome]:
        """`count` is None where it is computed. No tensor of a step changes its size: TFLite would allocate anew."""
        tfl = self.tfl
        steps = tfl.int32(count) if count is not None else self._steps()
        carried = [tfl.int32(0)]
        for direction in self.directions:
            carried += [each.tensor for each in direction.initial.parts]
            carried += [self._slots(direction, count)] if self.collects else []
        invariant = [steps, *([] if self.lengths is None else [self.lengths])]
        for direction in self.directions:
            invariant += [direction.projected, *(tfl.tensor(value) for value in direction.cell.computed())]

        def goes_on(arguments: list[Tensor]) -> list[Tensor]:
            return [tfl.op("less", [arguments[0], arguments[len(carried)]], (), bool)]

        def body(arguments: list[Tensor]) -> list[Tensor]:
            return self._body(iter(arguments[: len(carried)]), iter(arguments[len(carried) :]))

        results = iter(
            emit_loop(tfl, [(tensor, tensor.type) for tensor in carried], invariant, goes_on, body)[1:]
        )
        outcomes = []
        for direction in self.directions:
            state = self._taken(direction.initial, results)
            outcomes.append(Outcome(next(results) if self.collects else None, state))
        return outcomes

    def _body(self, carried: Iterator[Tensor], invariant: Iterator[Tensor]) -> list[Tensor]:
        tfl, time, steps = self.tfl, next(carried), next(invariant)
        lengths = None if self.lengths is None else Elements(tfl, next(invariant))
        one = tfl.int32(1)
        following = [tfl.op("add", [time, one], ())]
        for direction in self.directions:
            projected = next(invariant)
            weights = iter([nested_value(value, next(invariant)) for value in direction.cell.computed()])
            cell = direction.cell.with_computed(weights)
            now = time
            if direction.is_backwards:
                now = tfl.op("sub", [tfl.op("sub", [steps, one], ()), time], ())
            row = tfl.op("gather", [projected, now], tfl.shape_of(projected)[1:], axis=0, batch_dims=0)
            left = None if lengths is None else lengths - Elements(tfl, tfl.cast(now, np.float32))
            before = self._taken(direction.initial, carried)
            after, given = advance(self.step, cell, Elements(tfl, row), before, left)
            following += [each.tensor for each in after.parts]
            if self.collects:
                slots = next(carried)
                place = tfl.op("concatenation", [tfl.reshape(now, [1]), tfl.int32([0, 0])], [3], axis=0)
                update = tfl.with_unit_axis(given.tensor, 0)
                following.append(tfl.op("dynamic_update_slice", [slots, update, place], tfl.shape_of(slots)))
        return following

    def _taken(self, like: State, tensors: Iterator[Tensor]) -> State:
        """Return the next tensors as a state of the same parts."""
        return State(*(Elements(self.tfl, next(tensors)) for _ in like.parts))

    def _steps(self) -> Tensor:
        return self.tfl.reshape(self.tfl.size(self.directions[0].projected, 0), ())

    def _slots(self, direction: Direction, count: int | None) -> Tensor:
        """Room for the results of all steps."""
        tfl, size = self.tfl, direction.cell.size
        batch = tfl.shape_of(direction.projected)[1]
        sizes = (
            tfl.slice(tfl.op("shape", [direction.projected], [3], np.int32), [0], [2])
            if None in (count, batch)
            else tfl.int32([count or 0, batch or 0])
        )
        sizes = tfl.op("concatenation", [sizes, tfl.int32([size])], [3], axis=0)
        return tfl.op("broadcast_to", [tfl.constant(0, np.float32), sizes], (count, batch, size))
