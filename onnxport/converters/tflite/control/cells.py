"""One step of RNN, GRU and LSTM as formulas; how the steps follow each other is ops/recurrent.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from onnxport.converters.tflite.builder import TflBuilder
from onnxport.converters.tflite.elements import Elements
from onnxport.converters.tflite.ops.matmul import batch_matmul, product
from onnxport.converters.tflite.values import Value

Activation = Callable[[Elements], Elements]


@dataclass(frozen=True)
class State:
    """What one step hands to the next, [batch, hidden] each; None stands for zeros at the start."""

    hidden: Elements | None
    cell: Elements | None = None


@dataclass(frozen=True)
class Cell:
    """What a step of one direction computes with; weights are float32, constant or computed.

    Attributes:
        recurrence: [gates * hidden, hidden].
        candidate_bias: what GRU adds to the candidate's recurrent part before the reset gate; None elsewhere,
            where all biases are in what the input was projected to.
        peepholes: [3 * hidden] for i, o, f.
    """

    size: int
    recurrence: Value
    candidate_bias: Value | None
    peepholes: Value | None
    activations: tuple[Activation, ...]
    clip: float | None
    couples_gates: bool = False

    def computed(self) -> list[Value]:
        """Its weights that are no constants."""
        weights = (self.recurrence, self.candidate_bias, self.peepholes)
        return [value for value in weights if value is not None and value.constant is None]

    def with_computed(self, values: Iterator[Value]) -> Cell:
        """The same with others in place of computed()."""

        def other(value: Value | None) -> Value | None:
            return value if value is None or value.constant is not None else next(values)

        recurrence = other(self.recurrence)
        assert recurrence is not None
        return replace(
            self,
            recurrence=recurrence,
            candidate_bias=other(self.candidate_bias),
            peepholes=other(self.peepholes),
        )

    def activated(self, index: int, total: Elements) -> Elements:
        """A gate through activation `index`, its sum clipped before."""
        if self.clip is not None:
            total = total.maximum(-self.clip).minimum(self.clip)
        return self.activations[index](total)

    def recurrent(self, tfl: TflBuilder, hidden: Elements | None, first: int, count: int) -> Elements | None:
        """hidden times the recurrence of `count` gates from the `first` on."""
        if hidden is None:
            return None
        matrix = part(tfl, self.recurrence, first * self.size, count * self.size)
        left = tfl.computed(hidden.tensor)
        if matrix.constant is None:
            return Elements(tfl, batch_matmul(tfl, left, matrix, adjoint_b=True))
        factor = np.ascontiguousarray(matrix.constant.T)
        return Elements(tfl, tfl.tensor(product(tfl, left, Value(factor.shape, np.float32, constant=factor))))

    def gates(self, tfl: TflBuilder, total: Elements, count: int) -> list[Elements]:
        """A tensor [batch, count * hidden] cut into its gates."""
        batch, _ = tfl.shape_of(total.tensor)
        parts = [tfl.slice(total.tensor, [0, i * self.size], [batch, self.size]) for i in range(count)]
        return [Elements(tfl, each) for each in parts]


Step = Callable[[TflBuilder, Cell, Elements, State], State]


def part(tfl: TflBuilder, value: Value, start: int, size: int) -> Value:
    """`size` entries from `start` along the first axis."""
    if value.constant is not None:
        constant = np.ascontiguousarray(value.constant[start : start + size])
        return Value(constant.shape, value.dtype, constant=constant)
    if (start, size) == (0, value.shape[0]):
        return value
    rest = value.shape[1:]
    return tfl.computed(tfl.slice(tfl.tensor(value), [start, *(0 for _ in rest)], [size, *rest]))


def rnn_step(tfl: TflBuilder, cell: Cell, projected: Elements, state: State) -> State:
    """h = f(x W + h R + b) (ONNX RNN-22)."""
    return State(cell.activated(0, _plus(projected, cell.recurrent(tfl, state.hidden, 0, 1))))


def gru_step(tfl: TflBuilder, cell: Cell, projected: Elements, state: State) -> State:
    """z, r, then the candidate; h = (1 - z) n + z h (ONNX GRU-22)."""
    hidden = state.hidden
    update, reset, candidate = cell.gates(tfl, projected, 3)
    past = cell.recurrent(tfl, hidden, 0, 2)
    past_update, past_reset = (None, None) if past is None else cell.gates(tfl, past, 2)
    z = cell.activated(0, _plus(update, past_update))
    r = cell.activated(0, _plus(reset, past_reset))
    if cell.candidate_bias is not None:  # linear_before_reset
        bias = Elements(tfl, tfl.tensor(cell.candidate_bias))
        n = candidate + r * _plus(bias, cell.recurrent(tfl, hidden, 2, 1))
    else:
        n = _plus(candidate, None if hidden is None else cell.recurrent(tfl, r * hidden, 2, 1))
    n = cell.activated(1, n)
    return State(n - z * n if hidden is None else n - z * n + z * hidden)


def lstm_step(tfl: TflBuilder, cell: Cell, projected: Elements, state: State) -> State:
    """Gates i, o, f, c; c' = f c + i g, h = o tanh(c') (ONNX LSTM-22)."""
    i, o, f, g = cell.gates(tfl, _plus(projected, cell.recurrent(tfl, state.hidden, 0, 4)), 4)
    peep_i, peep_o, peep_f = _peepholes(tfl, cell)
    if state.cell is not None and peep_i is not None and peep_f is not None:
        i, f = i + peep_i * state.cell, f + peep_f * state.cell
    i = cell.activated(0, i)
    memory = i * cell.activated(1, g)
    if state.cell is not None:
        kept = -i + 1.0 if cell.couples_gates else cell.activated(0, f)
        memory = kept * state.cell + memory
    if peep_o is not None:
        o = o + peep_o * memory
    return State(cell.activated(0, o) * cell.activations[2](memory), memory)


def _peepholes(tfl: TflBuilder, cell: Cell) -> list[Elements] | list[None]:
    if cell.peepholes is None:
        return [None, None, None]
    parts = [part(tfl, cell.peepholes, k * cell.size, cell.size) for k in range(3)]
    return [Elements(tfl, tfl.tensor(each)) for each in parts]


def _plus(a: Elements, b: Elements | None) -> Elements:
    return a if b is None else a + b


# ---- activations

# Name in lower case -> defaults of the parameters that it takes, alpha first, and the function of x and those.
# ONNX leaves some defaults open; these are ONNX Runtime's, measured.
_ACTIVATIONS: dict[str, tuple[tuple[float, ...], Callable[..., Elements]]] = {
    "affine": ((0.0, 0.0), lambda x, alpha, beta: x * alpha + beta),
    "elu": ((1.0,), lambda x, alpha: x.maximum(0.0) + x.minimum(0.0).call("elu") * alpha),
    "hardsigmoid": ((0.2, 0.5), lambda x, alpha, beta: (x * alpha + beta).maximum(0.0).minimum(1.0)),
    "leakyrelu": ((0.01,), lambda x, alpha: x.maximum(0.0) + x.minimum(0.0) * alpha),
    "relu": ((), lambda x: x.call("relu")),
    "scaledtanh": ((0.0, 0.0), lambda x, alpha, beta: (x * beta).call("tanh") * alpha),
    "sigmoid": ((), lambda x: x.call("logistic")),
    "softplus": ((), lambda x: x.maximum(0.0) + (-x.call("abs")).call("exp").log1p_of_fraction()),
    "softsign": ((), lambda x: x / (x.call("abs") + 1.0)),
    "tanh": ((), lambda x: x.call("tanh")),
    "thresholdedrelu": ((0.0,), lambda x, alpha: _thresholded(x, alpha)),
}


def _thresholded(x: Elements, alpha: float) -> Elements:
    above = float(np.nextafter(np.float32(alpha), np.float32(np.inf)))
    return x.where_at_least(above, x, Elements(x.tfl, x.tfl.constant(0, np.float32)))


def activations(names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]) -> list[Activation]:
    """The functions of these names, which take their parameters from the lists in turn.

    Raises:
        KeyError: an unknown name.
    """
    given = iter(alphas), iter(betas)
    found: list[Activation] = []
    for name in names:
        defaults, function = _ACTIVATIONS[name.lower()]
        parameters = [next(numbers, default) for numbers, default in zip(given, defaults, strict=False)]
        found.append(lambda x, function=function, parameters=parameters: function(x, *parameters))  # type: ignore[misc]
    return found
