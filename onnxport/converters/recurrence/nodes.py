"""The attributes of RNN, GRU and LSTM."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from onnxport.converters.formulas import Formula
from onnxport.converters.lowering import NodeView
from onnxport.converters.recurrence.activations import activations
from onnxport.converters.recurrence.cells import Step, gru_step, lstm_step, rnn_step

F = TypeVar("F", bound=Formula)


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

    @property
    def states(self) -> tuple[int, ...]:
        """The indices of the operands with the state before the first step."""
        return (5, 6) if self.kind.has_cell else (5,)

    def by_direction(self, each: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Split a list with an entry for each of `names` by direction."""
        count = len(self.kind.activations)
        return [tuple(each[i * count : (i + 1) * count]) for i in range(len(self.backwards))]

    def functions(self, own: Mapping[str, Callable[..., F]]) -> list[tuple[Callable[[F], F], ...]]:
        """Return each direction's activations; see `activations`."""
        return self.by_direction(activations(self.names, *self.parameters, own))

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
