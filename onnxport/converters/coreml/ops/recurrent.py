"""RNN, GRU and LSTM: MIL's own layers where their documentation is unambiguous, else step by step in float32.

MIL has a gru, but its documentation does not say whether the reset gate comes before or after the product with the
hidden state.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from onnxport.converters.constant_growth import format_size
from onnxport.converters.coreml.builder import MilBuilder, MilNode
from onnxport.converters.coreml.numbers.formulas import Term
from onnxport.converters.coreml.recurrence import ACTIVATIONS, Cell, Outcome, State, Steps, part
from onnxport.converters.coreml.registry import REGISTRY
from onnxport.converters.coreml.shapes.dims import as_shape, size_of
from onnxport.converters.coreml.values import Value
from onnxport.converters.recurrence.lowering import KINDS, RecurrentLowering
from onnxport.core.arrays import Array

# Some twenty operators a step: more make the program long.
_UNROLLED_STEPS = 16
# ONNX's activations without parameters -> MIL's.
_NATIVE = {"relu": "relu", "sigmoid": "sigmoid", "tanh": "tanh"}
# ONNX's gates i, o, f, c in MIL's order i, f, o, c.
_LSTM_GATES = (0, 2, 1, 3)


class _Recurrent(RecurrentLowering[Value, Cell, Term, Value]):
    cell_class, functions = Cell, ACTIVATIONS

    def __init__(self, node: MilNode, mil: MilBuilder) -> None:
        super().__init__(node)
        self.mil = mil
        self.lengths = node.optional(4)
        self.peepholes = node.optional(7) if self.attributes.kind.has_cell else None

    def run(self) -> None:
        weights = [self.node.optional(index) for index in (1, 2)]
        widened = [each for each in weights if each is not None and each.quantized is not None]
        if size := sum(each.constant.nbytes for each in widened if each.constant is not None):
            self.mil.notes.append(
                f"{self.node.op} {self.node.name!r} stores {format_size(size)} of weights as floats, which the model "
                "has in fewer bits: Core ML documents no other weights for recurrent layers"
            )
        self.emit(self._native() if self._is_native() else self._stepwise())

    @cached_property
    def x(self) -> Value:
        """[steps, batch, features]."""
        x = self.node.x
        return self.mil.transpose(x=x, perm=[1, 0, 2]) if self.attributes.batch_first else x

    # ---- operands of one direction

    def constant(self, array: Array) -> Value:
        return self.mil.constant(array)

    def part(self, value: Value, start: int, size: int) -> Value:
        return part(self.mil, value, start, size)

    def operand(self, index: int, number: int) -> Value | None:
        value = self.node.optional(index)
        return None if value is None else self._entry(value, number)

    def _entry(self, value: Value, number: int) -> Value:
        """Return value[number]."""
        if value.constant is not None:
            return self.mil.constant(np.ascontiguousarray(value.constant[number]))
        return self.mil.squeeze(x=part(self.mil, value, number, 1), axes=[0])

    def initial(self, index: int, number: int) -> Term:
        return Term(self.mil, self._initial(index, number))

    def _initial(self, index: int, number: int) -> Value:
        mil, value = self.mil, self.node.optional(index)
        if value is None:
            shape = as_shape(mil, [size_of(mil, self.x, 1), self.size])
            if isinstance(shape, list):
                return mil.constant(np.zeros(shape, np.float32))
            return mil.fill(shape=shape, value=0.0)
        if self.attributes.batch_first:
            value = self._transpose(value)
        return self._entry(value, number)

    def _transpose(self, value: Value) -> Value:
        if value.constant is not None:
            return self.mil.constant(np.ascontiguousarray(value.constant.transpose(1, 0, 2)))
        return self.mil.transpose(x=value, perm=[1, 0, 2])

    # ---- MIL's own layers

    def _is_native(self) -> bool:
        """Return whether MIL's lstm or rnn is documented to compute the same."""
        weights = [self.node.optional(index) for index in (1, 2, 3)]
        return (
            self.node.op != "GRU"
            and self.lengths is None
            and self.peepholes is None
            and self.clip is None
            and not self.attributes.couples_gates
            and not any(self.attributes.parameters)
            and all(name.lower() in _NATIVE for name in self.attributes.names)
            and all(weight is None or weight.constant is not None for weight in weights)
        )

    def _native(self) -> list[Outcome]:
        if not self.mil.at_least("iOS17"):
            self.mil.compute = "fp32"
        names = self.attributes.by_direction(self.attributes.names)
        return [
            self._native_direction(number, is_backwards, names[number])
            for number, is_backwards in enumerate(self.attributes.backwards)
        ]

    def _native_direction(self, number: int, is_backwards: bool, names: Sequence[str]) -> Outcome:
        mil = self.mil
        named = [_NATIVE[name.lower()] for name in names]
        weights = {
            "weight_ih": self._by_mil_gates(self.operand(1, number)),
            "weight_hh": self._by_mil_gates(self.operand(2, number)),
            "bias": self._bias(number),
        }
        common = {
            "x": self.x,
            "direction": "reverse" if is_backwards else "forward",
            "output_sequence": self.node.wants_output(0),
            **weights,
        }
        initial = self._initial(5, number)
        if self.node.op == "RNN":
            sequence, hidden = mil.emit_all("rnn", initial_h=initial, activation=named[0], **common)
            return Outcome(sequence, State(Term(mil, hidden)))
        sequence, hidden, cell = mil.emit_all(
            "lstm",
            initial_h=initial,
            initial_c=self._initial(6, number),
            recurrent_activation=named[0],
            cell_activation=named[1],
            activation=named[2],
            **common,
        )
        return Outcome(sequence, State(Term(mil, hidden), Term(mil, cell)))

    def _by_mil_gates(self, value: Value | None) -> Value | None:
        """Reorder LSTM's gates along the first axis for MIL."""
        if value is None or self.node.op != "LSTM":
            return value
        assert value.constant is not None
        gates = np.split(value.constant, len(_LSTM_GATES))
        return self.mil.constant(np.concatenate([gates[place] for place in _LSTM_GATES]))

    def _bias(self, number: int) -> Value | None:
        both = self.operand(3, number)
        if both is None:
            return None
        assert both.constant is not None
        return self._by_mil_gates(self.mil.constant(both.constant.reshape(2, -1).sum(axis=0)))

    # ---- step by step

    def _stepwise(self) -> list[Outcome]:
        mil = self.mil
        mil.compute = "fp32"
        lengths = None
        if self.lengths is not None:
            floats = mil.cast(x=self.lengths, dtype="fp32")
            lengths = Term(mil, mil.expand_dims(x=floats, axes=[1]))
        (count, batch), outcomes = self.x.shape[:2], []
        for direction in self.directions():
            step, collects = self.attributes.kind.step, self.node.wants_output(0)
            steps = Steps(mil, step, direction, batch, lengths, collects)
            unrolls = count is not None and count <= _UNROLLED_STEPS
            outcomes.append(steps.unroll(count or 0) if unrolls else steps.loop())
        return outcomes

    def project(self, number: int, bias: Value | None) -> Value:
        mil, weights = self.mil, self.operand(1, number)
        assert weights is not None
        total = mil.matmul(x=self.x, y=weights, transpose_y=True)
        if bias is None:
            return total
        width = self.attributes.kind.gates * self.size
        counts = self.attributes.outer_biases(self.size)
        if bias.constant is not None:
            ours, theirs = bias.constant.reshape(2, -1)
            return mil.add(x=total, y=(ours + theirs * counts).astype(np.float32))
        first, second = (part(mil, bias, start, width) for start in (0, width))
        if self.attributes.linear_before_reset:
            second = mil.mul(x=second, y=counts)
        return mil.add(x=total, y=mil.add(x=first, y=second))

    # ---- results

    def emit_sequence(self, sequences: Sequence[Value]) -> None:
        if self.attributes.batch_first:
            sequences = [self._transpose(each) for each in sequences]
        self.node.emit(self._stack(sequences, 2 if self.attributes.batch_first else 1), 0)

    def emit_state(self, parts: Sequence[Term], index: int) -> None:
        axis = 1 if self.attributes.batch_first else 0
        self.node.emit(self._stack([each.value for each in parts], axis), index)

    def _stack(self, values: Sequence[Value], axis: int) -> Value:
        if len(values) == 1:
            return self.mil.expand_dims(x=values[0], axes=[axis])
        return self.mil.stack(values=list(values), axis=axis)


REGISTRY.table(dict.fromkeys(KINDS, lambda node, mil: _Recurrent(node, mil).run()))
