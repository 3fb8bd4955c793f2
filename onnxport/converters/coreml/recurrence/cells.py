"""The operations of recurrent cells (converters/recurrence) in MIL."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder
from onnxport.converters.coreml.numbers.formulas import Term
from onnxport.converters.coreml.values import Value
from onnxport.converters.recurrence import cells

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
