"""Recurrent cells (converters/recurrence) in MIL: their operations, and their steps, unrolled or as a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder
from onnxport.converters.coreml.control.blocks import block_input, block_result, declare_open, emit_variable
from onnxport.converters.coreml.control.loop_outputs import Rows, make_rows
from onnxport.converters.coreml.library import Var
from onnxport.converters.coreml.numbers.formulas import Term
from onnxport.converters.coreml.values import Value
from onnxport.converters.recurrence import cells
from onnxport.converters.recurrence.cells import Step, advance, unroll

State: TypeAlias = cells.State[Term]


class Cell(cells.Cell[Term, Value]):
    def recurrent(self, hidden: Term, first: int, count: int) -> Term:
        mil = hidden.mil
        matrix = part(mil, self.recurrence, first * self.size, count * self.size)
        return Term(mil, mil.matmul(x=hidden.value, y=matrix, transpose_y=True))

    def gates(self, total: Term, count: int) -> list[Term]:
        mil = total.mil
        return [Term(mil, each) for each in mil.split(x=total.value, num_splits=count, axis=1)]

    def weights(self, beside: Term, value: Value, place: int | None = None) -> Term:
        mil = beside.mil
        return Term(mil, value if place is None else part(mil, value, place * self.size, self.size))


Direction: TypeAlias = cells.Direction[Cell, Term, Value]
Outcome: TypeAlias = cells.Outcome[Term, Value]


def part(mil: MilBuilder, value: Value, start: int, size: int) -> Value:
    """Return `size` entries from `start` along the first axis."""
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


# See recurrence/activations.py.
ACTIVATIONS: dict[str, Callable[..., Term]] = {
    "elu": lambda x, alpha: x.maximum(0.0) + (x.minimum(0.0).call("exp") - 1.0) * alpha,
    "sigmoid": lambda x: x.call("sigmoid"),
    "softplus": lambda x: x.maximum(0.0) + ((-x.call("abs")).call("exp") + 1.0).call("log", epsilon=0.0),
}


_FLOAT = np.dtype(np.float32)


@dataclass(frozen=True)
class Steps:
    """The steps of one recurrent node.

    Attributes:
        batch: how many sequences there are, None if that is open.
        lengths: float [batch, 1], how many steps each sequence has; None if all.
        collects: whether the results of all steps are asked for.
    """

    mil: MilBuilder
    step: Step
    batch: int | None
    lengths: Term | None
    collects: bool

    def unroll(self, direction: Direction, count: int) -> Outcome:
        mil = self.mil
        parts = (
            mil.split(x=direction.projected, num_splits=count, axis=0) if count > 1 else [direction.projected]
        )

        def row(time: int) -> Term:
            return Term(mil, mil.squeeze(x=parts[time], axes=[0]))

        state, outputs = unroll(self.step, direction, count, row, self.lengths)
        if not self.collects:
            return Outcome(None, state)
        return Outcome(mil.stack(values=[each.value for each in outputs], axis=0), state)

    def loop(self, direction: Direction) -> Outcome:
        return _Loop(self, direction).run()


class _Loop:
    """One direction as a loop: it carries a counter, the state, and the rows collected."""

    def __init__(self, steps: Steps, direction: Direction) -> None:
        self.steps, self.direction, self.mil = steps, direction, steps.mil
        cell = direction.cell
        # Variables made of them inside a block would not be visible outside it, nor in the next block.
        for value in (cell.recurrence, cell.candidate_bias, cell.peepholes, direction.projected):
            if value is not None:
                self.mil.var(value)
        if steps.lengths is not None:
            self.mil.var(steps.lengths.value)
        self.shape = (steps.batch, cell.size)

    @cached_property
    def count(self) -> Var | int:
        known = self.direction.projected.shape[0]
        if known is not None:
            return known
        sizes = emit_variable(self.mil, "shape", x=self.direction.projected)
        return emit_variable(self.mil, "gather", x=sizes, indices=np.int32(0), axis=0)

    @cached_property
    def rows(self) -> Rows:
        return make_rows(self.mil, self.shape, _FLOAT, self.count)

    def run(self) -> Outcome:
        mil, initial = self.mil, self.direction.initial
        variables = [block_result(mil, mil.constant(np.array(0, np.int32)))]
        variables += [block_result(mil, each.value) for each in initial.parts]
        variables += self.rows.start() if self.steps.collects else []
        results = mil.while_loop(_cond=self._continues, _body=self._step, loop_vars=variables)
        counter, *left = [next(iter(value.copies.values())) for value in results]
        final = self._state(iter(left))
        sequence = self.rows.finish(left[-1], counter, may_stop=False) if self.steps.collects else None
        return Outcome(sequence, final)

    def _continues(self, counter: Var, *_: Var) -> Var:
        return emit_variable(self.mil, "less", x=counter, y=self.count)

    def _step(self, counter: Var, *carried: Var) -> list[Var]:
        mil, direction = self.mil, self.direction
        for var in (counter, *carried):
            declare_open(var, ())
        now: Var = counter
        if direction.is_backwards:
            last = (
                emit_variable(mil, "sub", x=self.count, y=1)
                if not isinstance(self.count, int)
                else self.count - 1
            )
            now = emit_variable(mil, "sub", x=last, y=counter)
        row = Term(mil, mil.gather(x=direction.projected, indices=now, axis=0))
        lengths = self.steps.lengths
        left = None
        if lengths is not None:
            left = lengths - Term(mil, block_input(emit_variable(mil, "cast", x=now, dtype="fp32"), _FLOAT))
        after, given = advance(self.steps.step, direction.cell, row, self._state(iter(carried)), left)
        following = [emit_variable(mil, "add", x=counter, y=1)]
        following += [block_result(mil, each.value) for each in after.parts]
        if self.steps.collects:
            following.append(self.rows.add(carried[-1], given.value, now))
        return following

    def _state(self, variables: Iterator[Var]) -> State:
        """Return the next variables as a state of the direction's parts."""
        return State(
            *(Term(self.mil, block_input(next(variables), _FLOAT)) for _ in self.direction.initial.parts)
        )
