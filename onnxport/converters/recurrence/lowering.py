"""The lowering of a recurrent node: its attributes, its operands by direction, and its results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from onnxport.converters.formulas import Formula
from onnxport.converters.lowering import NodeView, TargetValue
from onnxport.converters.recurrence.activations import activations
from onnxport.converters.recurrence.cells import (
    Cell,
    Direction,
    Outcome,
    State,
    Step,
    gru_step,
    lstm_step,
    rnn_step,
)
from onnxport.core.arrays import Array

V = TypeVar("V", bound=TargetValue)  # a target's value
C = TypeVar("C", bound=Cell[Any, Any])
F = TypeVar("F", bound=Formula)
T = TypeVar("T")  # a target's form of a sequence


@dataclass(frozen=True)
class Kind:
    """The form of an op's weights and the formula of its step."""

    gates: int
    activations: tuple[str, ...]  # of one direction, by default
    step: Step
    has_cell: bool = False


KINDS = {
    "RNN": Kind(1, ("Tanh",), rnn_step),
    "GRU": Kind(3, ("Sigmoid", "Tanh"), gru_step),
    "LSTM": Kind(4, ("Sigmoid", "Tanh", "Tanh"), lstm_step, has_cell=True),
}
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@dataclass(frozen=True)
class Recurrent:
    """A recurrent node's attributes.

    Attributes:
        backwards: for each direction, if it runs from the last step to the first.
        names: the activations of all directions.
        parameters: the activations' alphas and betas.
    """

    kind: Kind
    batch_first: bool
    backwards: tuple[bool, ...]
    linear_before_reset: bool
    couples_gates: bool
    names: Sequence[str]
    parameters: tuple[Sequence[float], Sequence[float]]

    def by_direction(self, each: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Split a list with an entry for each of `names` by direction."""
        count = len(self.kind.activations)
        return [tuple(each[i * count : (i + 1) * count]) for i in range(len(self.backwards))]

    def outer_biases(self, size: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Return 1 for each recurrent bias that the projected input takes, 0 for a cell's candidate_bias."""
        counts = np.ones(self.kind.gates * size, np.float32)
        if self.linear_before_reset:
            counts[2 * size :] = 0
        return counts


def read_recurrent(node: NodeView[Any]) -> Recurrent:
    """Read a recurrent node's attributes, except `hidden_size` and `clip`."""
    kind, backwards = KINDS[node.op], _DIRECTIONS[node.attribute("direction", "forward")]
    return Recurrent(
        kind,
        batch_first=bool(node.attribute("layout", 0)),
        backwards=backwards,
        linear_before_reset=node.op == "GRU" and bool(node.attribute("linear_before_reset", 0)),
        couples_gates=node.op == "LSTM" and bool(node.attribute("input_forget", 0)),
        names=node.attribute("activations", kind.activations * len(backwards)),
        parameters=(node.attribute("activation_alpha", ()), node.attribute("activation_beta", ())),
    )


class RecurrentLowering(ABC, Generic[V, C, F, T]):
    """One RNN, GRU or LSTM node.

    Attributes:
        functions: the target's own activations, see recurrence/activations.py.
    """

    cell_class: ClassVar[Callable[..., Any]]
    functions: ClassVar[Mapping[str, Callable[..., Any]]]

    def __init__(self, node: NodeView[V]) -> None:
        if (rank := len(node.input(0).shape)) != 3:
            # A branch for other sizes than the given ones, which never runs.
            node.unsupported(f"takes sequences of 3 dimensions and gets {rank}; other sizes may fit it")
        self.node, self.attributes = node, read_recurrent(node)
        self.clip: float | None = node.attribute("clip", None)
        size = node.input(2).shape[2]
        if size is None:
            node.unsupported("computes its number of hidden units at run time")
        self.size = size
        node.attribute("hidden_size", size)  # the weights decide

    # ---- a target's operations

    @abstractmethod
    def constant(self, array: Array) -> V: ...

    @abstractmethod
    def part(self, value: V, start: int, size: int) -> V:
        """Return `size` entries from `start` along the first axis."""

    @abstractmethod
    def operand(self, index: int, number: int) -> V | None:
        """Return operand `index` of direction `number`, without its axis of directions."""

    @abstractmethod
    def initial(self, index: int, number: int) -> F | None:
        """Return the state before the first step of a direction, [batch, hidden]; None for zeros."""

    @abstractmethod
    def project(self, number: int, bias: V | None) -> T:
        """Return x W + b for all steps; b is both biases but for GRU's candidate_bias."""

    @abstractmethod
    def emit_sequence(self, sequences: Sequence[T]) -> None:
        """Emit [steps, directions, batch, hidden], or batch first."""

    @abstractmethod
    def emit_state(self, parts: Sequence[F], index: int) -> None:
        """Emit [directions, batch, hidden], or batch first."""

    # ---- of every target

    def directions(self) -> Iterator[Direction[C, F, T]]:
        attributes, size = self.attributes, self.size
        try:
            functions = activations(attributes.names, *attributes.parameters, type(self).functions)
        except KeyError as error:
            self.node.unsupported(f"has the activation {error}, which ONNX does not define")
        own = attributes.by_direction(functions)
        for number, is_backwards in enumerate(attributes.backwards):
            recurrence, bias = self.operand(2, number), self.operand(3, number)
            candidate_bias = None
            if attributes.linear_before_reset:
                zeros = np.zeros(size, np.float32)
                candidate_bias = self.constant(zeros) if bias is None else self.part(bias, 5 * size, size)
            peepholes = self.operand(7, number) if attributes.kind.has_cell else None
            cell = self.cell_class(
                size, recurrence, candidate_bias, peepholes, own[number], self.clip, attributes.couples_gates
            )
            states = (5, 6) if attributes.kind.has_cell else (5,)
            state = State(*(self.initial(index, number) for index in states))
            yield Direction(cell, is_backwards, self.project(number, bias), state)

    def emit(self, outcomes: Sequence[Outcome[F, T]]) -> None:
        """Emit the node's results."""
        if self.node.wants_output(0):
            self.emit_sequence([each.sequence for each in outcomes if each.sequence is not None])
        for index, parts in enumerate(zip(*(each.final.parts for each in outcomes), strict=True), start=1):
            if self.node.wants_output(index):
                self.emit_state(parts, index)
