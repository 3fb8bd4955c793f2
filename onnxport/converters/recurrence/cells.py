"""Steps of RNN, GRU and LSTM as formulas."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from onnxport.converters.formulas import Formula

F = TypeVar("F", bound=Formula)
V = TypeVar("V")  # a target's value
C = TypeVar("C", bound="Cell[Any, Any]")
T = TypeVar("T")  # a target's form of a sequence


@dataclass(frozen=True)
class State(Generic[F]):
    """The state after a step, [batch, hidden] each; None for the zeros before the first."""

    hidden: F | None
    cell: F | None = None

    @property
    def parts(self) -> list[F]:
        return [each for each in (self.hidden, self.cell) if each is not None]


@dataclass(frozen=True)
class Cell(ABC, Generic[F, V]):
    """The parameters of one direction's steps; its weights are constant or computed before the first step.

    Attributes:
        recurrence: [gates * hidden, hidden].
        candidate_bias: GRU's with linear_before_reset, added to the candidate's recurrent part before the reset
            gate; None elsewhere: all biases are in the projected input.
        peepholes: [3 * hidden] for i, o, f.
    """

    size: int
    recurrence: V
    candidate_bias: V | None
    peepholes: V | None
    activations: tuple[Callable[[F], F], ...]
    clip: float | None
    couples_gates: bool = False

    def activate(self, index: int, total: F) -> F:
        """Clip a gate's sum and apply activation `index`."""
        if self.clip is not None:
            total = total.maximum(-self.clip).minimum(self.clip)
        return self.activations[index](total)

    @abstractmethod
    def recurrent(self, hidden: F, first: int, count: int) -> F:
        """Multiply by the recurrence of `count` gates from the `first` on."""

    @abstractmethod
    def gates(self, total: F, count: int) -> list[F]:
        """Split [batch, count * hidden] into its gates."""

    @abstractmethod
    def weights(self, beside: F, value: V, place: int | None = None) -> F:
        """Return weights as a formula like `beside`; at `place`, only that [hidden] of them."""


class Step(Protocol):
    def __call__(self, cell: Cell[F, Any], projected: F, state: State[F], /) -> State[F]: ...


def rnn_step(cell: Cell[F, Any], projected: F, state: State[F]) -> State[F]:
    """Return h = f(x W + h R + b) (ONNX RNN-22)."""
    return State(cell.activate(0, _plus(projected, _past(cell, state.hidden, 0, 1))))


def gru_step(cell: Cell[F, Any], projected: F, state: State[F]) -> State[F]:
    """Return h from the gates z, r and the candidate n: h = (1 - z) n + z h (ONNX GRU-22)."""
    hidden = state.hidden
    update, reset, candidate = cell.gates(projected, 3)
    past = _past(cell, hidden, 0, 2)
    past_update, past_reset = (None, None) if past is None else cell.gates(past, 2)
    z = cell.activate(0, _plus(update, past_update))
    r = cell.activate(0, _plus(reset, past_reset))
    if cell.candidate_bias is not None:  # linear_before_reset
        bias = cell.weights(candidate, cell.candidate_bias)
        n = candidate + r * _plus(bias, _past(cell, hidden, 2, 1))
    else:
        n = _plus(candidate, None if hidden is None else cell.recurrent(r * hidden, 2, 1))
    n = cell.activate(1, n)
    return State(n - z * n if hidden is None else n - z * n + z * hidden)


def lstm_step(cell: Cell[F, Any], projected: F, state: State[F]) -> State[F]:
    """Return h and c from the gates i, o, f, c: c' = f c + i g, h = o tanh(c') (ONNX LSTM-22)."""
    i, o, f, g = cell.gates(_plus(projected, _past(cell, state.hidden, 0, 4)), 4)
    peepholes = [] if cell.peepholes is None else [cell.weights(i, cell.peepholes, k) for k in range(3)]
    if peepholes and state.cell is not None:
        i, f = i + peepholes[0] * state.cell, f + peepholes[2] * state.cell
    i = cell.activate(0, i)
    memory = i * cell.activate(1, g)
    if state.cell is not None:
        kept = -i + 1.0 if cell.couples_gates else cell.activate(0, f)
        memory = kept * state.cell + memory
    if peepholes:
        o = o + peepholes[1] * memory
    return State(cell.activate(0, o) * cell.activations[2](memory), memory)


def _past(cell: Cell[F, Any], hidden: F | None, first: int, count: int) -> F | None:
    return None if hidden is None else cell.recurrent(hidden, first, count)


def _plus(a: F, b: F | None) -> F:
    return a if b is None else a + b


@dataclass(frozen=True)
class Direction(Generic[C, F, T]):
    """One direction through time.

    Attributes:
        projected: x W + b, [time, batch, gates * hidden]; each step reads its row.
    """

    cell: C
    is_backwards: bool
    projected: T
    initial: State[F]


@dataclass(frozen=True)
class Outcome(Generic[F, T]):
    """The results of one direction: [time, batch, hidden] of all steps if wanted, and the last state."""

    sequence: T | None
    final: State[F]


def advance(step: Step, cell: Cell[F, Any], row: F, state: State[F], left: F | None) -> tuple[State[F], F]:
    """Return the state after a step and the step's output; past a sequence's end the state stays, the output is 0.

    Args:
        left: [batch, 1], 1 or more for the sequences that have the step; None if all have it.
    """
    after = step(cell, row, state)
    assert after.hidden is not None
    if left is None:
        return after, after.hidden
    assert state.hidden is not None
    memory = None
    if state.cell is not None and after.cell is not None:
        memory = left.where_at_least(0.5, after.cell, state.cell)
    hidden = left.where_at_least(0.5, after.hidden, state.hidden)
    return State(hidden, memory), left.where_at_least(0.5, after.hidden, 0.0)


def unroll(
    step: Step, direction: Direction[Any, F, Any], count: int, row: Callable[[int], F], lengths: F | None
) -> tuple[State[F], list[F]]:
    """Return the last state and the outputs of `count` steps.

    Args:
        row: returns the projected input of a step.
        lengths: [batch, 1], the number of steps of each sequence; None if all have `count`.
    """
    state, outputs = direction.initial, {}
    for time in reversed(range(count)) if direction.is_backwards else range(count):
        projected = row(time)
        left = None if lengths is None else lengths - float(time)
        state, outputs[time] = advance(step, direction.cell, projected, state, left)
    return state, [outputs[time] for time in range(count)]
