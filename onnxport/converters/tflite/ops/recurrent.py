"""RNN, GRU and LSTM: a few known steps are unrolled, others become a loop.

TFLite's own recurrent ops keep their state from one invocation to the next, ONNX's begin anew each time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxport.converters.recurrence.lowering import KINDS, RecurrentLowering
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.control.recurrence import ACTIVATIONS, Cell, Steps, part, times_transposed
from onnxport.converters.tflite.formulas import Elements
from onnxport.converters.tflite.ops.reshape import transpose
from onnxport.converters.tflite.registry import REGISTRY
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value, constant
from onnxport.core.arrays import Array

# Some twenty ops a step: more take the compiler longer than the loop costs at run time.
_UNROLLED_STEPS = 32


class _Recurrent(RecurrentLowering[Value, Cell, Elements, Tensor]):
    """Its arithmetic is float32."""

    cell_class, functions = Cell, ACTIVATIONS

    def __init__(self, node: TflNode, tfl: TflBuilder) -> None:
        super().__init__(node)
        self.tfl = tfl
        x = tfl.float32(node.x)
        self.x = transpose(tfl, x, (1, 0, 2)) if self.attributes.batch_first else x
        self.steps, self.batch, _ = self.x.shape
        lengths = node.optional(4)
        self.lengths = (
            None if lengths is None else tfl.with_unit_axis(tfl.tensor(tfl.convert(lengths, np.float32)), 1)
        )
        self.unrolls = self.steps is not None and self.steps <= _UNROLLED_STEPS

    def run(self) -> None:
        directions = list(self.directions())
        step, collects = self.attributes.kind.step, self.node.wants_output(0)
        steps = Steps(self.tfl, step, directions, self.lengths, collects)
        if self.unrolls and self.steps is not None:
            self.emit(steps.unroll(self.steps))
        else:
            self.emit(steps.loop(self.steps))

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
        total = times_transposed(tfl, self.x, weights)
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


def _lower_recurrent(node: TflNode, tfl: TflBuilder) -> None:
    _Recurrent(node, tfl).run()


REGISTRY.table(dict.fromkeys(KINDS, _lower_recurrent))
