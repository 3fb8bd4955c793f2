"""Recurrent cells (converters/recurrence) in MIL: their operations, and their steps, unrolled or as a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder, wrap
from onnxport.converters.coreml.control import (
    RowList,
    Slots,
    block_result,
    declare_open,
    emit_variable,
    make_rows,
)
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
        return [Term(mil, each) for each in mil.emit_all("split", x=total.value, num_splits=count, axis=1)]

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
    zeros, masks = [0] * (value.rank - 1), [False, *[True] * (value.rank - 1)]
    begin, end = [start, *zeros], [start + size, *zeros]
    return mil.slice_by_index(x=value, begin=begin, end=end, begin_mask=masks, end_mask=masks)


# See recurrence/activations.py.
ACTIVATIONS: dict[str, Callable[..., Term]] = {
    "elu": lambda x, alpha: x.maximum(0.0) + (x.minimum(0.0).call("exp") - 1.0) * alpha,
    "sigmoid": lambda x: x.call("sigmoid"),
    "softplus": lambda x: x.maximum(0.0) + ((-x.call("abs")).call("exp") + 1.0).call("log", epsilon=0.0),
}


_FLOAT = np.dtype(np.float32)


@dataclass
class Steps:
    """The steps of one direction.

    Attributes:
        batch: how many sequences there are, None if that is open.
        lengths: float [batch, 1], how many steps each sequence has; None if all.
        collects: whether the node gives the results of all steps.
    """

    mil: MilBuilder
    step: Step
    direction: Direction
    batch: int | None
    lengths: Term | None
    collects: bool

    def unroll(self, count: int) -> Outcome:
        mil, parts = self.mil, [self.direction.projected]
        if count > 1:
            parts = mil.emit_all("split", x=parts[0], num_splits=count, axis=0)

        def row(time: int) -> Term:
            return Term(mil, mil.squeeze(x=parts[time], axes=[0]))

        state, outputs = unroll(self.step, self.direction, count, row, self.lengths)
        if not self.collects:
            return Outcome(None, state)
        return Outcome(mil.stack(values=[each.value for each in outputs], axis=0), state)

    def loop(self) -> Outcome:
        """Emit a loop; it carries a counter, the state, and the rows collected."""
        mil, direction = self.mil, self.direction
        cell = direction.cell
        # Variables made of them inside a block would not be visible outside it, nor in the next block.
        for value in (cell.recurrence, cell.candidate_bias, cell.peepholes, direction.projected):
            if value is not None:
                mil.var(value)
        if self.lengths is not None:
            mil.var(self.lengths.value)
        count = self._count
        variables = [block_result(mil, mil.constant(np.array(0, np.int32)))]
        variables += [block_result(mil, each.value) for each in direction.initial.parts]
        variables += [self._rows.start()] if self.collects else []

        def continues(counter: Var, *_: Var) -> Var:
            return emit_variable(mil, "less", x=counter, y=count)

        results = mil.emit_all("while_loop", _cond=continues, _body=self._body, loop_vars=variables)
        counter, *left = [value.var for value in results]
        final = self._state(iter(left))
        sequence = self._rows.finish(left[-1], counter, may_stop=False) if self.collects else None
        return Outcome(sequence, final)

    @cached_property
    def _count(self) -> Var | int:
        known = self.direction.projected.shape[0]
        if known is not None:
            return known
        sizes = emit_variable(self.mil, "shape", x=self.direction.projected)
        return emit_variable(self.mil, "gather", x=sizes, indices=np.int32(0), axis=0)

    @cached_property
    def _rows(self) -> Slots | RowList:
        return make_rows(self.mil, (self.batch, self.direction.cell.size), _FLOAT, self._count)

    def _body(self, counter: Var, *carried: Var) -> list[Var]:
        mil, direction = self.mil, self.direction
        for var in (counter, *carried):
            declare_open(var, ())
        now: Var = counter
        if direction.is_backwards:
            known = isinstance(self._count, int)
            last = self._count - 1 if known else emit_variable(mil, "sub", x=self._count, y=1)
            now = emit_variable(mil, "sub", x=last, y=counter)
        row = Term(mil, mil.gather(x=direction.projected, indices=now, axis=0))
        left = None
        if self.lengths is not None:
            left = self.lengths - Term(mil, wrap(emit_variable(mil, "cast", x=now, dtype="fp32"), _FLOAT))
        after, given = advance(self.step, direction.cell, row, self._state(iter(carried)), left)
        following = [emit_variable(mil, "add", x=counter, y=1)]
        following += [block_result(mil, each.value) for each in after.parts]
        if self.collects:
            following.append(self._rows.add(carried[-1], given.value, now))
        return following

    def _state(self, variables: Iterator[Var]) -> State:
        """Return the next variables as a state of the direction's parts."""
        return State(*(Term(self.mil, wrap(next(variables), _FLOAT)) for _ in self.direction.initial.parts))
