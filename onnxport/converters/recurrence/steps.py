"""Directions through time, and how a step's results depend on the lengths of the sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from onnxport.converters.formulas import Formula
from onnxport.converters.recurrence.cells import Cell, State, Step

C = TypeVar("C", bound=Cell[Any, Any])
F = TypeVar("F", bound=Formula)
T = TypeVar("T")  # what a target holds a sequence in


@dataclass(frozen=True)
class Direction(Generic[C, F, T]):
    """One direction through time.

    Attributes:
        projected: [time, batch, gates * hidden], of which each step takes its row.
    """

    cell: C
    is_backwards: bool
    projected: T
    initial: State[F]


@dataclass(frozen=True)
class Outcome(Generic[F, T]):
    """Of one direction: [time, batch, hidden] of all steps, None if not asked for, and the state at the end."""

    sequence: T | None
    final: State[F]


def advanced(step: Step, cell: Cell[F, Any], row: F, state: State[F], left: F | None) -> tuple[State[F], F]:
    """The state after a step and what it gives; past a sequence's end the state stays and it gives 0.

    `left` is [batch, 1], 1 or more for the sequences that have the step; None if all have.
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
