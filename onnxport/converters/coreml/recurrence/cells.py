"""One step of RNN, GRU and LSTM as formulas; how the steps follow each other is steps.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder
from onnxport.converters.coreml.numbers.formulas import Term
from onnxport.converters.coreml.values import Value

Activation = Callable[[Term], Term]


@dataclass(frozen=True)
class State:
    """What one step hands to the next, [batch, hidden] each."""

    hidden: Term
    cell: Term | None = None


@dataclass(frozen=True)
class Cell:
    """What a step of one direction computes with, all of it constant or computed before the first step.

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

    def activated(self, index: int, total: Term) -> Term:
        """A gate through activation `index`, its sum clipped before."""
        if self.clip is not None:
            total = total.maximum(-self.clip).minimum(self.clip)
        return self.activations[index](total)

    def recurrent(self, hidden: Term, first: int, count: int) -> Term:
        """hidden times the recurrence of `count` gates from the `first` on."""
        mil = hidden.mil
        matrix = part(mil, self.recurrence, first * self.size, count * self.size)
        return Term(mil, mil.matmul(x=hidden.value, y=matrix, transpose_y=True))

    def gates(self, total: Term, count: int) -> list[Term]:
        """[batch, count * hidden] cut into its gates."""
        mil = total.mil
        return [Term(mil, each) for each in mil.split(x=total.value, num_splits=count, axis=1)]


Step = Callable[[Cell, Term, State], State]


def part(mil: MilBuilder, value: Value, start: int, size: int) -> Value:
    """`size` entries from `start` along the first axis."""
    if (start, size) == (0, value.shape[0]):
        return value
    if value.constant is not None:
        return mil.constant(np.ascontiguousarray(value.constant[start : start + size]))
    rest = [True] * (value.rank - 1)
    return mil.slice_by_index(  # type: ignore[no-any-return]
        x=value,
        begin=[start, *(0 for _ in rest)],
        end=[start + size, *(0 for _ in rest)],
        begin_mask=[False, *rest],
        end_mask=[False, *rest],
    )


def rnn_step(cell: Cell, projected: Term, state: State) -> State:
    """h = f(x W + h R + b) (ONNX RNN-22)."""
    return State(cell.activated(0, projected + cell.recurrent(state.hidden, 0, 1)))


def gru_step(cell: Cell, projected: Term, state: State) -> State:
    """z, r, then the candidate; h = (1 - z) n + z h (ONNX GRU-22)."""
    hidden = state.hidden
    update, reset, candidate = cell.gates(projected, 3)
    past_update, past_reset = cell.gates(cell.recurrent(hidden, 0, 2), 2)
    z = cell.activated(0, update + past_update)
    r = cell.activated(0, reset + past_reset)
    if cell.candidate_bias is not None:  # linear_before_reset
        past = cell.recurrent(hidden, 2, 1) + Term(hidden.mil, cell.candidate_bias)
        n = candidate + r * past
    else:
        n = candidate + cell.recurrent(r * hidden, 2, 1)
    n = cell.activated(1, n)
    return State(n - z * n + z * hidden)


def lstm_step(cell: Cell, projected: Term, state: State) -> State:
    """Gates i, o, f, c; c' = f c + i g, h = o tanh(c') (ONNX LSTM-22)."""
    assert state.cell is not None
    i, o, f, g = cell.gates(projected + cell.recurrent(state.hidden, 0, 4), 4)
    peepholes = _peepholes(cell, i.mil)
    if peepholes:
        i, f = i + peepholes[0] * state.cell, f + peepholes[2] * state.cell
    i = cell.activated(0, i)
    kept = -i + 1.0 if cell.couples_gates else cell.activated(0, f)
    memory = kept * state.cell + i * cell.activated(1, g)
    if peepholes:
        o = o + peepholes[1] * memory
    return State(cell.activated(0, o) * cell.activations[2](memory), memory)


def _peepholes(cell: Cell, mil: MilBuilder) -> list[Term]:
    if cell.peepholes is None:
        return []
    return [Term(mil, part(mil, cell.peepholes, k * cell.size, cell.size)) for k in range(3)]


# ---- activations


# Name in lower case -> defaults of the parameters that it takes, alpha first, and the function of x and those.
# ONNX leaves some defaults open; these are ONNX Runtime's, measured.
_ACTIVATIONS: dict[str, tuple[tuple[float, ...], Callable[..., Term]]] = {
    "affine": ((0.0, 0.0), lambda x, alpha, beta: x * alpha + beta),
    "elu": ((1.0,), lambda x, alpha: x.maximum(0.0) + (x.minimum(0.0).call("exp") - 1.0) * alpha),
    "hardsigmoid": ((0.2, 0.5), lambda x, alpha, beta: (x * alpha + beta).maximum(0.0).minimum(1.0)),
    "leakyrelu": ((0.01,), lambda x, alpha: x.maximum(0.0) + x.minimum(0.0) * alpha),
    "relu": ((), lambda x: x.call("relu")),
    "scaledtanh": ((0.0, 0.0), lambda x, alpha, beta: (x * beta).call("tanh") * alpha),
    "sigmoid": ((), lambda x: x.call("sigmoid")),
    "softplus": (
        (),
        lambda x: x.maximum(0.0) + ((-x.call("abs")).call("exp") + 1.0).call("log", epsilon=0.0),
    ),
    "softsign": ((), lambda x: x / (x.call("abs") + 1.0)),
    "tanh": ((), lambda x: x.call("tanh")),
    "thresholdedrelu": (
        (0.0,),
        lambda x, alpha: (x >= float(np.nextafter(np.float32(alpha), np.float32(np.inf)))).where(x, 0.0),
    ),
}


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
