"""RNN, GRU and LSTM: a few known steps one after another in the graph, others in a loop.

TFLite's own recurrent ops keep their state from one invocation to the next, ONNX's begin anew each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from onnxport.converters.recurrence.nodes import KINDS, recurrent_of
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.control.cells import (
    ACTIVATIONS,
    Activation,
    Cell,
    Direction,
    State,
    part,
    times_transposed,
)
from onnxport.converters.tflite.control.steps import Steps
from onnxport.converters.tflite.elements import Elements
from onnxport.converters.tflite.ops.reshape import transposed
from onnxport.converters.tflite.registry import REGISTRY
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value

# Some twenty ops a step: more take the compiler longer than the loop costs at run time.
_UNROLLED_STEPS = 32


class _Recurrent:
    """One recurrent node: its operands read, and its results made of the states after each step."""

    def __init__(self, node: TflNode, tfl: TflBuilder) -> None:
        self.node, self.tfl, self.says = node, tfl, recurrent_of(node)
        x = tfl.float32(node.x)
        self.x = transposed(tfl, x, (1, 0, 2)) if self.says.batch_first else x
        self.steps, self.batch, _ = self.x.shape
        lengths = node.optional(4)
        self.lengths = (
            None if lengths is None else tfl.with_unit_axis(tfl.tensor(tfl.converted(lengths, np.float32)), 1)
        )
        self.clip: float | None = node.attribute("clip", None)
        self.unrolls = self.steps is not None and self.steps <= _UNROLLED_STEPS

    # ---- operands

    @cached_property
    def directions(self) -> list[Direction]:
        """Each direction, with the input multiplied by its weights for all steps at once."""
        node = self.node
        recurrence = self.tfl.float32(node.input(2))
        size = recurrence.shape[2]
        if size is None:
            node.unsupported("its number of hidden units is computed at run time")
        node.attribute("hidden_size", size)  # the weights say it
        functions = self._functions()
        return [
            self._direction(number, is_backwards, size, functions[number])
            for number, is_backwards in enumerate(self.says.backwards)
        ]

    def _direction(
        self,
        number: int,
        is_backwards: bool,
        size: int,
        functions: tuple[Activation, ...],
    ) -> Direction:
        recurrence = self._of_direction(2, number)
        assert recurrence is not None
        bias = self._of_direction(3, number)
        before_reset = self._before_reset(bias, size)
        peepholes = self._of_direction(7, number) if self.says.kind.has_cell else None
        cell = Cell(size, recurrence, before_reset, peepholes, functions, self.clip, self.says.couples_gates)
        given = [self._initial(index, number, size) for index in self.says.states]
        return Direction(cell, is_backwards, self._projected(number, bias, size), State(*given))

    def _of_direction(self, index: int, number: int) -> Value | None:
        """What operand `index` holds for one direction, in float32."""
        if not self.node.has_input(index):
            self.node.optional(index)
            return None
        value = self.tfl.float32(self.node.input(index))
        one = part(self.tfl, value, number, 1)
        if one.constant is not None:
            return Value(one.shape[1:], np.float32, constant=one.constant[0])
        return self.tfl.computed(self.tfl.without_unit_axis(self.tfl.tensor(one), 0))

    def _before_reset(self, bias: Value | None, size: int) -> Value | None:
        if not self.says.linear_before_reset:
            return None
        if bias is None:
            return Value((size,), np.float32, constant=np.zeros(size, np.float32))
        return part(self.tfl, bias, 5 * size, size)

    def _projected(self, number: int, bias: Value | None, size: int) -> Tensor:
        """x W + b for all steps, b being both biases but for what GRU adds inside."""
        tfl, weights = self.tfl, self._of_direction(1, number)
        assert weights is not None
        total = times_transposed(tfl, self.x, weights)
        if bias is None:
            return total.tensor
        width = self.says.kind.gates * size
        ours, theirs = part(tfl, bias, 0, width), part(tfl, bias, width, width)
        outside = self.says.added_outside(size)
        if ours.constant is not None and theirs.constant is not None:
            return (total + Elements(tfl, tfl.constant(ours.constant + theirs.constant * outside))).tensor
        theirs_outside = Elements(tfl, tfl.tensor(theirs))
        if self.says.linear_before_reset:
            theirs_outside = theirs_outside * Elements(tfl, tfl.constant(outside))
        return (total + Elements(tfl, tfl.tensor(ours)) + theirs_outside).tensor

    def _initial(self, index: int, number: int, size: int) -> Elements | None:
        """The state before the first step; None, for zeros, only where every step comes to pass."""
        tfl = self.tfl
        if not self.node.has_input(index):
            self.node.optional(index)
            if self.lengths is None and self.unrolls:
                return None
            batch = tfl.size(tfl.tensor(self.x), 1) if self.batch is None else tfl.int32([self.batch])
            sizes = tfl.op("concatenation", [batch, tfl.int32([size])], [2], axis=0)
            zeros = tfl.op("broadcast_to", [tfl.constant(0, np.float32), sizes], (self.batch, size))
            return Elements(tfl, zeros)
        value = tfl.float32(self.node.input(index))
        tensor = tfl.tensor(transposed(tfl, value, (1, 0, 2)) if self.says.batch_first else value)
        batch = tfl.shape_of(tensor)[1]
        one = tfl.slice(tensor, [number, 0, 0], [1, batch, size])
        return Elements(tfl, tfl.without_unit_axis(one, 0))

    def _functions(self) -> list[tuple[Activation, ...]]:
        try:
            return self.says.functions(ACTIVATIONS)
        except KeyError as error:
            self.node.unsupported(f"the activation {error}")

    def run(self) -> None:
        steps = Steps(self.tfl, self.says.kind.step, self.directions, self.lengths, self.node.wants_output(0))
        if self.unrolls:
            assert self.steps is not None
            outcomes = steps.unrolled(self.steps)
        else:
            outcomes = steps.looped(self.steps)
        sequences = [outcome.sequence for outcome in outcomes if outcome.sequence is not None]
        if sequences:
            self._emit_sequence(sequences)
        for index, parts in enumerate(zip(*(each.final.parts for each in outcomes), strict=True), start=1):
            if self.node.wants_output(index):
                self._emit_final(parts, index)

    # ---- results

    def _emit_sequence(self, outputs: list[Tensor]) -> None:
        """[steps, directions, batch, hidden]."""
        value = self.tfl.computed(self._joined([self.tfl.with_unit_axis(each, 1) for each in outputs], 1))
        value = transposed(self.tfl, value, (2, 0, 1, 3)) if self.says.batch_first else value
        self.node.emit(self.tfl.converted(value, self.node.x.dtype), 0)

    def _emit_final(self, parts: Sequence[Elements], index: int) -> None:
        """[directions, batch, hidden]."""
        tensors = [self.tfl.with_unit_axis(each.tensor, 0) for each in parts]
        value = self.tfl.computed(self._joined(tensors, 0))
        value = transposed(self.tfl, value, (1, 0, 2)) if self.says.batch_first else value
        self.node.emit(self.tfl.converted(value, self.node.x.dtype), index)

    def _joined(self, tensors: list[Tensor], axis: int) -> Tensor:
        shape = list(self.tfl.shape_of(tensors[0]))
        if shape[axis] is not None:
            shape[axis] = len(tensors) * (shape[axis] or 0)
        return tensors[0] if len(tensors) == 1 else self.tfl.op("concatenation", tensors, shape, axis=axis)


def _recurrent(node: TflNode, tfl: TflBuilder) -> None:
    _Recurrent(node, tfl).run()


REGISTRY.table(dict.fromkeys(KINDS, _recurrent))
