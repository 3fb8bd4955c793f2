"""RNN, GRU and LSTM: a few known steps are unrolled, others become a loop.

TFLite's own recurrent ops keep their state from one invocation to the next, ONNX's begin anew each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np

from onnxport.converters.recurrence import cells
from onnxport.converters.recurrence.cells import advance, unroll
from onnxport.converters.recurrence.lowering import KINDS, RecurrentLowering
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.control.functions import emit_loop, nested_value
from onnxport.converters.tflite.control.recurrence import ACTIVATIONS, Cell, multiply_transposed, part
from onnxport.converters.tflite.formulas import Elements
from onnxport.converters.tflite.ops.reshape import transpose
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value, constant
from onnxport.core.arrays import Array

# Some twenty ops a step: more take the compiler longer than the loop costs at run time.
_UNROLLED_STEPS = 32
_MOST_STEPS = 128  # where the target has no loops

_State: TypeAlias = cells.State[Elements]
_Direction: TypeAlias = cells.Direction[Cell, Elements, Tensor]
_Outcome: TypeAlias = cells.Outcome[Elements, Tensor]


class _Recurrent(RecurrentLowering[Value, Cell, Elements, Tensor]):
    """Its arithmetic is float32."""

    cell_class, functions = Cell, ACTIVATIONS

    def __init__(self, node: TflNode, tfl: TflBuilder) -> None:
        super().__init__(node)
        self.tfl = tfl
        x = tfl.float32(node.x)
        self.x = transpose(tfl, x, (1, 0, 2)) if self.attributes.batch_first else x
        self.steps, self.batch, _ = self.x.shape
        self.lengths: Tensor | None = (
            None  # [batch, 1], how many steps each sequence has, in float32; None if all
        )
        if (lengths := node.optional(4)) is not None:
            self.lengths = tfl.with_unit_axis(tfl.tensor(tfl.convert(lengths, np.float32)), 1)
        self.collects = node.wants_output(0)
        most = _UNROLLED_STEPS if tfl.runs_loops else _MOST_STEPS
        self.unrolls = self.steps is not None and self.steps <= most

    def run(self) -> None:
        directions = list(self.directions())
        if self.unrolls and self.steps is not None:
            self.emit([self._unroll(direction, self.steps) for direction in directions])
        else:
            self.emit(self._loop(directions))

    # ---- operands

    def constant(self, array: Array) -> Value:
        return constant(array)

    def part(self, value: Value, start: int, size: int) -> Value:
        return part(self.tfl, value, start, size)

    def operand(self, index: int, number: int) -> Value | None:
        value = self.node.optional(index)
        if value is None:
            return None
        one = self.part(self.tfl.float32(value), number, 1)
        if one.constant is not None:
            return constant(one.constant[0])
        return self.tfl.value(self.tfl.without_unit_axis(self.tfl.tensor(one), 0))

    def initial(self, index: int, number: int) -> Elements | None:
        """See RecurrentLowering: None only where every step is taken and unrolled."""
        tfl, value = self.tfl, self.node.optional(index)
        if value is None:
            if self.lengths is None and self.unrolls:
                return None
            batch = tfl.size(tfl.tensor(self.x), 1) if self.batch is None else tfl.int32([self.batch])
            sizes = tfl.concatenate([batch, tfl.int32([self.size])])
            zeros = tfl.op("broadcast_to", [tfl.constant(0, np.float32), sizes], (self.batch, self.size))
            return Elements(tfl, zeros)
        value = tfl.float32(value)
        tensor = tfl.tensor(transpose(tfl, value, (1, 0, 2)) if self.attributes.batch_first else value)
        batch = tfl.shape_of(tensor)[1]
        one = tfl.slice(tensor, [number, 0, 0], [1, batch, self.size])
        return Elements(tfl, tfl.without_unit_axis(one, 0))

    def project(self, number: int, bias: Value | None) -> Tensor:
        tfl, weights = self.tfl, self.operand(1, number)
        assert weights is not None
        total = multiply_transposed(tfl, self.x, weights)
        if bias is None:
            return total.tensor
        width = self.attributes.kind.gates * self.size
        ours, theirs = self.part(bias, 0, width), self.part(bias, width, width)
        outside = self.attributes.outer_biases(self.size)
        if ours.constant is not None and theirs.constant is not None:
            return (total + Elements(tfl, tfl.constant(ours.constant + theirs.constant * outside))).tensor
        theirs_outside = Elements(tfl, tfl.tensor(theirs))
        if self.attributes.linear_before_reset:
            theirs_outside = theirs_outside * Elements(tfl, tfl.constant(outside))
        return (total + Elements(tfl, tfl.tensor(ours)) + theirs_outside).tensor

    # ---- steps

    def _unroll(self, direction: _Direction, count: int) -> _Outcome:
        tfl = self.tfl
        _, batch, width = tfl.shape_of(direction.projected)

        def row(time: int) -> Elements:
            one = tfl.slice(direction.projected, [time, 0, 0], [1, batch, width])
            return Elements(tfl, tfl.without_unit_axis(one, 0))

        lengths = None if self.lengths is None else Elements(tfl, self.lengths)
        state, outputs = unroll(self.attributes.kind.step, direction, count, row, lengths)
        if not self.collects:
            return _Outcome(None, state)
        return _Outcome(tfl.concatenate([tfl.with_unit_axis(each.tensor, 0) for each in outputs]), state)

    def _loop(self, directions: Sequence[_Direction]) -> list[_Outcome]:
        """Emit a loop over the steps. No tensor changes its size: TFLite would allocate anew."""
        tfl, count = self.tfl, self.steps
        size = tfl.reshape(tfl.size(directions[0].projected, 0), ()) if count is None else tfl.int32(count)
        carried = [tfl.int32(0)]
        for direction in directions:
            carried += [each.tensor for each in direction.initial.parts]
            carried += [self._slots(direction)] if self.collects else []
        invariant = [size, *([] if self.lengths is None else [self.lengths])]
        for direction in directions:
            invariant.append(direction.projected)
            invariant += [tfl.tensor(value) for value in direction.cell.run_time_weights()]

        def goes_on(arguments: list[Tensor]) -> list[Tensor]:
            return [tfl.op("less", [arguments[0], arguments[len(carried)]], (), bool)]

        def body(arguments: list[Tensor]) -> list[Tensor]:
            return self._body(directions, iter(arguments[: len(carried)]), iter(arguments[len(carried) :]))

        typed = [(tensor, tensor.type) for tensor in carried]
        results = iter(emit_loop(tfl, typed, invariant, goes_on, body)[1:])
        outcomes = []
        for direction in directions:
            state = self._take_state(direction.initial, results)
            outcomes.append(_Outcome(next(results) if self.collects else None, state))
        return outcomes

    def _body(
        self, directions: Sequence[_Direction], carried: Iterator[Tensor], invariant: Iterator[Tensor]
    ) -> list[Tensor]:
        tfl, time, steps = self.tfl, next(carried), next(invariant)
        lengths = None if self.lengths is None else Elements(tfl, next(invariant))
        one = tfl.int32(1)
        following = [tfl.op("add", [time, one], ())]
        for direction in directions:
            projected = next(invariant)
            weights = [nested_value(each, next(invariant)) for each in direction.cell.run_time_weights()]
            cell = direction.cell.with_run_time_weights(iter(weights))
            now = time
            if direction.is_backwards:
                now = tfl.op("sub", [tfl.op("sub", [steps, one], ()), time], ())
            row = tfl.gather(projected, now)
            left = None if lengths is None else lengths - Elements(tfl, tfl.cast(now, np.float32))
            before = self._take_state(direction.initial, carried)
            after, given = advance(self.attributes.kind.step, cell, Elements(tfl, row), before, left)
            following += [each.tensor for each in after.parts]
            if self.collects:
                slots = next(carried)
                place = tfl.concatenate([tfl.reshape(now, [1]), tfl.int32([0, 0])])
                update = tfl.with_unit_axis(given.tensor, 0)
                following.append(tfl.op("dynamic_update_slice", [slots, update, place], tfl.shape_of(slots)))
        return following

    def _take_state(self, like: _State, tensors: Iterator[Tensor]) -> _State:
        """Return the next tensors as a state of the same parts."""
        return _State(*(Elements(self.tfl, next(tensors)) for _ in like.parts))

    def _slots(self, direction: _Direction) -> Tensor:
        """Return room for the results of all steps."""
        tfl, size, count = self.tfl, direction.cell.size, self.steps
        batch = tfl.shape_of(direction.projected)[1]
        if count is None or batch is None:
            sizes = tfl.slice(tfl.sizes(direction.projected), [0], [2])
        else:
            sizes = tfl.int32([count, batch])
        sizes = tfl.concatenate([sizes, tfl.int32([size])])
        return tfl.op("broadcast_to", [tfl.constant(0, np.float32), sizes], (count, batch, size))

    # ---- results

    def emit_sequence(self, sequences: Sequence[Tensor]) -> None:
        tensors = [self.tfl.with_unit_axis(each, 1) for each in sequences]
        self._emit(tensors, 1, (2, 0, 1, 3), 0)

    def emit_state(self, parts: Sequence[Elements], index: int) -> None:
        tensors = [self.tfl.with_unit_axis(each.tensor, 0) for each in parts]
        self._emit(tensors, 0, (1, 0, 2), index)

    def _emit(self, tensors: list[Tensor], axis: int, batch_first: tuple[int, ...], index: int) -> None:
        value = self.tfl.value(self.tfl.concatenate(tensors, axis))
        value = transpose(self.tfl, value, batch_first) if self.attributes.batch_first else value
        self.node.emit(self.tfl.convert(value, self.node.x.dtype), index)


@lower(*KINDS)
def lower_recurrent(node: TflNode, tfl: TflBuilder) -> None:
    _Recurrent(node, tfl).run()
