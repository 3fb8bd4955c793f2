"""RNN, GRU and LSTM: MIL's own layers where its documentation says the very same, else step by step, in float32.

MIL has a gru, but its documentation does not say whether the reset gate comes before or after the product with the
hidden state.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder
from onnxport.converters.coreml.numbers.formulas import Term
from onnxport.converters.coreml.recurrence.cells import (
    ACTIVATIONS,
    Activation,
    Cell,
    Direction,
    Outcome,
    State,
    part,
)
from onnxport.converters.coreml.recurrence.steps import Steps
from onnxport.converters.coreml.registry import REGISTRY
from onnxport.converters.coreml.shapes.dims import as_shape, size_of
from onnxport.converters.coreml.values import Value
from onnxport.converters.lowering import NodeView
from onnxport.converters.recurrence.nodes import KINDS, recurrent_of
from onnxport.core.arrays import Array

# Some twenty operators a step: more make the program long.
_UNROLLED_STEPS = 16
# ONNX's activations whose MIL names mean the same, parameters being out of the question.
_NATIVE = {"relu": "relu", "sigmoid": "sigmoid", "tanh": "tanh"}
# ONNX's gates i, o, f, c in MIL's order i, f, o, c.
_LSTM_GATES = (0, 2, 1, 3)


class _Recurrent:
    """One recurrent node: its operands read, and its results made of each direction's outcome."""

    def __init__(self, node: NodeView[Value], mil: MilBuilder) -> None:
        self.node, self.mil, self.says = node, mil, recurrent_of(node)
        self.clip: float | None = node.attribute("clip", None)
        size = node.input(2).shape[2]
        if size is None:
            node.unsupported("computes its number of hidden units at run time")
        self.size = size
        node.attribute("hidden_size", size)  # the weights say it
        self.lengths = node.optional(4)
        self.peepholes = node.optional(7) if self.says.kind.has_cell else None

    def run(self) -> None:
        outcomes = self._native() if self._is_native() else self._stepwise()
        sequences = [outcome.sequence for outcome in outcomes if outcome.sequence is not None]
        if self.node.wants_output(0):
            self._emit_sequence(sequences)
        for index, parts in enumerate(zip(*(each.final.parts for each in outcomes), strict=True), start=1):
            if self.node.wants_output(index):
                self._emit_final([each.value for each in parts], index)

    @cached_property
    def x(self) -> Value:
        """[steps, batch, features]."""
        x = self.node.x
        return self.mil.transpose(x=x, perm=[1, 0, 2]) if self.says.batch_first else x

    # ---- operands of one direction

    def _of_direction(self, index: int, number: int) -> Value | None:
        """What operand `index` holds for one direction."""
        value = self.node.optional(index)
        if value is None:
            return None
        if value.constant is not None:
            return self.mil.constant(np.ascontiguousarray(value.constant[number]))
        return self.mil.squeeze(x=part(self.mil, value, number, 1), axes=[0])  # type: ignore[no-any-return]

    def _initial(self, index: int, number: int) -> Value:
        """The state before the first step, [batch, hidden]."""
        mil, value = self.mil, self.node.optional(index)
        if value is None:
            sizes = [size_of(mil, self.x, 1), self.size]
            shape = as_shape(mil, sizes)
            if isinstance(shape, list):
                return mil.constant(np.zeros(shape, np.float32))
            return mil.fill(shape=shape, value=0.0)  # type: ignore[no-any-return]
        if self.says.batch_first:
            value = self._transposed(value)
        if value.constant is not None:
            return mil.constant(np.ascontiguousarray(value.constant[number]))
        return mil.squeeze(x=part(mil, value, number, 1), axes=[0])  # type: ignore[no-any-return]

    def _transposed(self, value: Value) -> Value:
        if value.constant is not None:
            return self.mil.constant(np.ascontiguousarray(value.constant.transpose(1, 0, 2)))
        return self.mil.transpose(x=value, perm=[1, 0, 2])  # type: ignore[no-any-return]

    # ---- MIL's own layers

    def _is_native(self) -> bool:
        """Whether MIL's lstm or rnn does the same by its documentation."""
        weights = [self.node.optional(index) for index in (1, 2, 3)]
        return (
            self.node.op != "GRU"
            and self.lengths is None
            and self.peepholes is None
            and self.clip is None
            and not self.says.couples_gates
            and not any(self.says.parameters)
            and all(name.lower() in _NATIVE for name in self.says.names)
            and all(weight is None or weight.constant is not None for weight in weights)
        )

    def _native(self) -> list[Outcome]:
        if not self.mil.at_least("iOS17"):
            self.mil.compute = "fp32"
        names = self.says.of_directions(self.says.names)
        return [
            self._native_direction(number, is_backwards, names[number])
            for number, is_backwards in enumerate(self.says.backwards)
        ]

    def _native_direction(self, number: int, is_backwards: bool, names: Sequence[str]) -> Outcome:
        mil = self.mil
        direction = "reverse" if is_backwards else "forward"
        named = [_NATIVE[name.lower()] for name in names]
        weights = {
            "weight_ih": self._by_mil_gates(self._of_direction(1, number)),
            "weight_hh": self._by_mil_gates(self._of_direction(2, number)),
            "bias": self._bias(number),
        }
        common = {
            "x": self.x,
            "direction": direction,
            "output_sequence": self.node.wants_output(0),
            **weights,
        }
        if self.node.op == "RNN":
            sequence, hidden = mil.rnn(initial_h=self._initial(5, number), activation=named[0], **common)
            return Outcome(sequence, State(Term(mil, hidden)))
        sequence, hidden, cell = mil.lstm(
            initial_h=self._initial(5, number),
            initial_c=self._initial(6, number),
            recurrent_activation=named[0],
            cell_activation=named[1],
            activation=named[2],
            **common,
        )
        return Outcome(sequence, State(Term(mil, hidden), Term(mil, cell)))

    def _by_mil_gates(self, value: Value | None) -> Value | None:
        if value is None or self.node.op != "LSTM":
            return value
        assert value.constant is not None
        return self.mil.constant(_reordered(value.constant))

    def _bias(self, number: int) -> Value | None:
        both = self._of_direction(3, number)
        if both is None:
            return None
        assert both.constant is not None
        total = both.constant.reshape(2, -1).sum(axis=0)
        return self.mil.constant(_reordered(total) if self.node.op == "LSTM" else total)

    # ---- step by step

    def _stepwise(self) -> list[Outcome]:
        mil = self.mil
        mil.compute = "fp32"
        lengths = None
        if self.lengths is not None:
            floats = mil.cast(x=self.lengths, dtype="fp32")
            lengths = Term(mil, mil.expand_dims(x=floats, axes=[1]))
        steps = Steps(mil, self.says.kind.step, self.x.shape[1], lengths, self.node.wants_output(0))
        count = self.x.shape[0]
        outcomes = []
        for number, (is_backwards, functions) in enumerate(
            zip(self.says.backwards, self._functions(), strict=True)
        ):
            direction = self._direction(number, is_backwards, functions)
            if count is not None and count <= _UNROLLED_STEPS:
                outcomes.append(steps.unrolled(direction, count))
            else:
                outcomes.append(steps.looped(direction))
        return outcomes

    def _functions(self) -> list[tuple[Activation, ...]]:
        try:
            return self.says.functions(ACTIVATIONS)
        except KeyError as error:
            self.node.unsupported(f"has the activation {error}, which ONNX does not define")

    def _direction(self, number: int, is_backwards: bool, functions: tuple[Activation, ...]) -> Direction:
        mil, recurrence = self.mil, self._of_direction(2, number)
        assert recurrence is not None
        bias = self._of_direction(3, number)
        inside = None
        if self.says.linear_before_reset:
            zeros = mil.constant(np.zeros(self.size, np.float32))
            inside = zeros if bias is None else part(mil, bias, 5 * self.size, self.size)
        peepholes = self._of_direction(7, number) if self.says.kind.has_cell else None
        cell = Cell(self.size, recurrence, inside, peepholes, functions, self.clip, self.says.couples_gates)
        given = [Term(mil, self._initial(index, number)) for index in self.says.states]
        return Direction(cell, is_backwards, self._projected(number, bias), State(*given))

    def _projected(self, number: int, bias: Value | None) -> Value:
        """x W + b for all steps, b being both biases but for what GRU adds inside."""
        mil, weights = self.mil, self._of_direction(1, number)
        assert weights is not None
        total = mil.matmul(x=self.x, y=weights, transpose_y=True)
        if bias is None:
            return total  # type: ignore[no-any-return]
        width = self.says.kind.gates * self.size
        counts = self.says.added_outside(self.size)
        if bias.constant is not None:
            ours, theirs = bias.constant.reshape(2, -1)
            return mil.add(x=total, y=(ours + theirs * counts).astype(np.float32))  # type: ignore[no-any-return]
        first, second = (part(mil, bias, start, width) for start in (0, width))
        if self.says.linear_before_reset:
            second = mil.mul(x=second, y=counts)
        return mil.add(x=total, y=mil.add(x=first, y=second))  # type: ignore[no-any-return]

    # ---- results

    def _emit_sequence(self, outputs: Sequence[Value]) -> None:
        """[steps, directions, batch, hidden], or batch first."""
        axis = 2 if self.says.batch_first else 1
        if self.says.batch_first:
            outputs = [self._transposed(each) for each in outputs]
        self.node.emit(self._stacked(outputs, axis), 0)

    def _emit_final(self, parts: Sequence[Value], index: int) -> None:
        """[directions, batch, hidden], or batch first."""
        self.node.emit(self._stacked(parts, 1 if self.says.batch_first else 0), index)

    def _stacked(self, values: Sequence[Value], axis: int) -> Value:
        if len(values) == 1:
            return self.mil.expand_dims(x=values[0], axes=[axis])  # type: ignore[no-any-return]
        return self.mil.stack(values=list(values), axis=axis)  # type: ignore[no-any-return]


def _reordered(array: Array) -> Array:
    """LSTM's gates along the first axis, in MIL's order."""
    gates = np.split(array, len(_LSTM_GATES))
    return np.concatenate([gates[place] for place in _LSTM_GATES])


def _recurrent(node: NodeView[Value], mil: MilBuilder) -> None:
    _Recurrent(node, mil).run()


REGISTRY.table(dict.fromkeys(KINDS, _recurrent))
