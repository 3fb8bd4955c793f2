"""RNN, GRU and LSTM, unrolled over a known number of steps.

TFLite's own recurrent ops keep their state from one invocation to the next, ONNX's begin anew each time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from onnxport.converters.tflite.builder import TflBuilder, TflNode, constant_of, optional_constant
from onnxport.converters.tflite.elements import Elements
from onnxport.converters.tflite.ops.matmul import product
from onnxport.converters.tflite.ops.reshaping import transposed
from onnxport.converters.tflite.registry import REGISTRY
from onnxport.converters.tflite.tensors import Array, Tensor
from onnxport.converters.tflite.values import Value

# Twenty ops a step; what is longer would take the compiler minutes.
_MAX_STEPS = 512

ACTIVATIONS = {"Relu": "relu", "Sigmoid": "logistic", "Tanh": "tanh"}


@dataclass(frozen=True)
class _State:
    """What one step hands to the next, [batch, hidden] each; None stands for zeros at the start."""

    hidden: Elements | None
    cell: Elements | None = None


@dataclass(frozen=True)
class _Direction:
    """One direction's weights, as [input, gates * hidden] and so on, and what its gates go through."""

    tfl: TflBuilder
    size: int
    weights: Array
    recurrence: Array
    input_bias: Array
    recurrence_bias: Array
    peepholes: Array | None
    activations: tuple[str, ...]
    clip: float | None

    def recurrent(self, hidden: Elements | None, part: slice = slice(None)) -> Elements | None:
        """hidden times the recurrence, without bias, for some gates."""
        if hidden is None:
            return None
        matrix = np.ascontiguousarray(self.recurrence[:, part])
        factor = Value(matrix.shape, np.float32, constant=matrix)
        value = product(self.tfl, self.tfl.computed(hidden.tensor), factor)
        return Elements(self.tfl, self.tfl.tensor(value))

    def gates(self, total: Elements, count: int) -> list[Elements]:
        """A tensor [batch, count * hidden] cut into its gates."""
        batch, _ = self.tfl.shape_of(total.tensor)
        parts = [self.tfl.slice(total.tensor, [0, i * self.size], [batch, self.size]) for i in range(count)]
        return [Elements(self.tfl, part) for part in parts]

    def activated(self, index: int, total: Elements) -> Elements:
        """A gate through activation `index`, its sum clipped before."""
        if self.clip is not None:
            total = total.maximum(-self.clip).minimum(self.clip)
        return total.call(ACTIVATIONS[self.activations[index]])

    def bias(self, values: Array) -> Elements:
        return Elements(self.tfl, self.tfl.constant(values, np.float32))


Step = Callable[[_Direction, Elements, _State], _State]


def _plus(a: Elements, b: Elements | None) -> Elements:
    return a if b is None else a + b


def _rnn_step(direction: _Direction, projected: Elements, state: _State) -> _State:
    """h = f(x W + h R + b) (ONNX RNN-22)."""
    total = _plus(projected, direction.recurrent(state.hidden)) + direction.bias(direction.recurrence_bias)
    return _State(direction.activated(0, total))


def _gru_step(linear_before_reset: bool, direction: _Direction, projected: Elements, state: _State) -> _State:
    """z, r, then the candidate; h = (1 - z) n + z h (ONNX GRU-22)."""
    size, hidden = direction.size, state.hidden
    update, reset, candidate = direction.gates(projected, 3)
    past = direction.recurrent(hidden, slice(0, 2 * size))
    past_update, past_reset = (None, None) if past is None else direction.gates(past, 2)
    biases = [direction.bias(each) for each in np.split(direction.recurrence_bias, 3)]
    z = direction.activated(0, _plus(update, past_update) + biases[0])
    r = direction.activated(0, _plus(reset, past_reset) + biases[1])
    own = slice(2 * size, 3 * size)
    if linear_before_reset:
        before = direction.recurrent(hidden, own)
        n = candidate + r * (biases[2] if before is None else before + biases[2])
    else:
        n = _plus(candidate, None if hidden is None else direction.recurrent(r * hidden, own)) + biases[2]
    n = direction.activated(1, n)
    return _State(n - z * n if hidden is None else n - z * n + z * hidden)


def _lstm_step(direction: _Direction, projected: Elements, state: _State) -> _State:
    """Gates i, o, f, c; c' = f c + i g, h = o tanh(c') (ONNX LSTM-22)."""
    total = _plus(projected, direction.recurrent(state.hidden)) + direction.bias(direction.recurrence_bias)
    i, o, f, g = direction.gates(total, 4)
    peep_i, peep_o, peep_f = _peepholes(direction)
    if state.cell is not None and peep_i is not None and peep_f is not None:
        i, f = i + peep_i * state.cell, f + peep_f * state.cell
    cell = direction.activated(0, i) * direction.activated(1, g)
    if state.cell is not None:
        cell = direction.activated(0, f) * state.cell + cell
    if peep_o is not None:
        o = o + peep_o * cell
    squashed = cell.call(ACTIVATIONS[direction.activations[2]])
    return _State(direction.activated(0, o) * squashed, cell)


def _peepholes(direction: _Direction) -> list[Elements] | list[None]:
    if direction.peepholes is None:
        return [None, None, None]
    return [direction.bias(each) for each in np.split(direction.peepholes, 3)]


# ---- what the three ops share


@dataclass(frozen=True)
class _Kind:
    """How an op's weights are cut and its node read."""

    gates: int
    activations: tuple[str, ...]  # of one direction, by default
    has_cell: bool = False


KINDS = {
    "RNN": _Kind(1, ("Tanh",)),
    "GRU": _Kind(3, ("Sigmoid", "Tanh")),
    "LSTM": _Kind(4, ("Sigmoid", "Tanh", "Tanh"), has_cell=True),
}


class _Unrolled:
    """One recurrent node: its operands read, and the graph of all its steps."""

    def __init__(self, node: TflNode, tfl: TflBuilder) -> None:
        self.node, self.tfl, self.kind = node, tfl, KINDS[node.op]
        self.batch_first = bool(node.attribute("layout", 0))
        x = tfl.float32(node.x)
        self.x = transposed(tfl, x, (1, 0, 2)) if self.batch_first else x
        steps = self.x.shape[0]
        if steps is None or steps > _MAX_STEPS:
            length = "an open number of" if steps is None else str(steps)
            node.unsupported(
                f"{length} steps, which would be unrolled; at most {_MAX_STEPS}, see --shape NAME=..."
            )
        self.steps = steps
        self.lengths = node.optional(4)
        self.step = self._step()

    def _step(self) -> Step:
        node = self.node
        if node.op == "GRU":
            return partial(_gru_step, bool(node.attribute("linear_before_reset", 0)))
        if node.op == "LSTM" and node.attribute("input_forget", 0) == 1:
            node.unsupported("input_forget, the coupling of two gates")
        return _lstm_step if node.op == "LSTM" else _rnn_step

    @cached_property
    def directions(self) -> list[tuple[_Direction, bool]]:
        """Each direction, and whether it runs backwards."""
        node = self.node
        backwards = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[
            node.attribute("direction", "forward")
        ]
        weights, recurrence = (constant_of(node, i, "the weights").astype(np.float32) for i in (1, 2))
        count, size = len(backwards), recurrence.shape[2]
        node.attribute("hidden_size", size)  # the weights say it
        bias = optional_constant(node, 3, "the bias")
        bias = np.zeros((count, 2 * self.kind.gates * size), np.float32) if bias is None else bias
        peepholes = optional_constant(node, 7, "the peepholes") if self.kind.has_cell else None
        clip = node.attribute("clip", None)
        activations = self._activations(count)
        per_direction = []
        for number, is_backwards in enumerate(backwards):
            input_bias, recurrence_bias = np.split(bias[number].astype(np.float32), 2)
            direction = _Direction(
                self.tfl,
                size,
                weights[number].T,
                recurrence[number].T,
                input_bias,
                recurrence_bias,
                None if peepholes is None else peepholes[number].astype(np.float32),
                activations[number],
                clip,
            )
            per_direction.append((direction, is_backwards))
        return per_direction

    def _activations(self, count: int) -> list[tuple[str, ...]]:
        node, each = self.node, len(self.kind.activations)
        names = node.attribute("activations", self.kind.activations * count)
        if node.attribute("activation_alpha", ()) or node.attribute("activation_beta", ()):
            node.unsupported("activations with parameters")
        for name in names:
            if name not in ACTIVATIONS:
                node.unsupported(f"the activation {name}")
        return [tuple(names[i * each : (i + 1) * each]) for i in range(count)]

    def run(self) -> None:
        outputs, finals = [], []
        for number, (direction, is_backwards) in enumerate(self.directions):
            results, final = self._run(direction, is_backwards, self._initial(number, direction))
            outputs.append(results)
            finals.append(final)
        if self.node.wants_output(0):
            self._emit_sequence(outputs)
        states = [(1, [state.hidden for state in finals]), (2, [state.cell for state in finals])]
        for index, parts in states[: 1 + self.kind.has_cell]:
            if self.node.wants_output(index):
                self._emit_final(parts, index)

    def _initial(self, number: int, direction: _Direction) -> _State:
        """The state before the first step; zeros are left out where every step comes to pass."""
        given = [self._given(index, number, direction) for index in (5, 6)[: 1 + self.kind.has_cell]]
        return _State(*given)

    def _given(self, index: int, number: int, direction: _Direction) -> Elements | None:
        tfl, size = self.tfl, direction.size
        if not self.node.has_input(index):
            if self.lengths is None:
                return None
            batch = tfl.size(tfl.tensor(self.x), 1)
            shape = tfl.op("concatenation", [batch, tfl.int32([size])], [2], axis=0)
            zeros = tfl.op("broadcast_to", [tfl.constant(0, np.float32), shape], (self.x.shape[1], size))
            return Elements(tfl, zeros)
        value = tfl.float32(self.node.input(index))
        tensor = tfl.tensor(transposed(tfl, value, (1, 0, 2)) if self.batch_first else value)
        batch_size = tfl.shape_of(tensor)[1]
        part = tfl.slice(tensor, [number, 0, 0], [1, batch_size, size])
        return Elements(tfl, tfl.reshape(part, (batch_size, size)))

    def _run(
        self, direction: _Direction, is_backwards: bool, state: _State
    ) -> tuple[dict[int, Elements], _State]:
        """Each step's output by time, and the last state."""
        tfl = self.tfl
        matrix = Value(direction.weights.shape, np.float32, constant=np.ascontiguousarray(direction.weights))
        tensor = tfl.tensor(product(tfl, self.x, matrix))
        tensor = (Elements(tfl, tensor) + direction.bias(direction.input_bias)).tensor
        _, batch, width = tfl.shape_of(tensor)
        outputs = {}
        for time in reversed(range(self.steps)) if is_backwards else range(self.steps):
            part = tfl.reshape(tfl.slice(tensor, [time, 0, 0], [1, batch, width]), (batch, width))
            after = self.step(direction, Elements(tfl, part), state)
            if self.lengths is not None:
                state, outputs[time] = self._within_length(time, state, after)
            else:
                assert after.hidden is not None
                state, outputs[time] = after, after.hidden
        return outputs, state

    def _within_length(self, time: int, before: _State, after: _State) -> tuple[_State, Elements]:
        """Past a sequence's end its state stays and its output is 0."""
        tfl, lengths = self.tfl, self.lengths
        assert lengths is not None
        column = tfl.with_unit_axis(tfl.tensor(tfl.converted(lengths, np.float32)), 1)
        inside = Elements(tfl, column)
        assert before.hidden is not None
        assert after.hidden is not None
        limit = float(time) + 0.5
        hidden = inside.where_at_least(limit, after.hidden, before.hidden)
        cell = None
        if before.cell is not None and after.cell is not None:
            cell = inside.where_at_least(limit, after.cell, before.cell)
        zero = Elements(tfl, tfl.constant(0, np.float32))
        return replace(before, hidden=hidden, cell=cell), inside.where_at_least(limit, after.hidden, zero)

    def _emit_sequence(self, outputs: list[dict[int, Elements]]) -> None:
        """[steps, directions, batch, hidden]."""
        whole = [self._stacked([each[t] for t in range(self.steps)], (1, 1)) for each in outputs]
        value = self.tfl.computed(self._joined(whole, 1))
        value = transposed(self.tfl, value, (2, 0, 1, 3)) if self.batch_first else value
        self.node.emit(self.tfl.converted(value, self.node.x.dtype), 0)

    def _emit_final(self, parts: list[Elements | None], index: int) -> None:
        """[directions, batch, hidden]."""
        value = self.tfl.computed(self._stacked([part for part in parts if part is not None], (1,)))
        value = transposed(self.tfl, value, (1, 0, 2)) if self.batch_first else value
        self.node.emit(self.tfl.converted(value, self.node.x.dtype), index)

    def _stacked(self, parts: list[Elements], axes: tuple[int, ...]) -> Tensor:
        """The parts, with axes of size 1 put before them, one after another along the first."""
        tensors = [self.tfl.reshape(p.tensor, (*axes, *self.tfl.shape_of(p.tensor))) for p in parts]
        return self._joined(tensors, 0)

    def _joined(self, tensors: list[Tensor], axis: int) -> Tensor:
        shape = list(self.tfl.shape_of(tensors[0]))
        shape[axis] = len(tensors) * (shape[axis] or 0)
        return tensors[0] if len(tensors) == 1 else self.tfl.op("concatenation", tensors, shape, axis=axis)


def _recurrent(node: TflNode, tfl: TflBuilder) -> None:
    _Unrolled(node, tfl).run()


REGISTRY.table(dict.fromkeys(KINDS, _recurrent))
