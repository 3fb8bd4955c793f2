"""Arithmetic in MIL; each operator is one of MIL's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from onnxport.converters.coreml.builder import Compute, MilBuilder
from onnxport.converters.coreml.values import Value
from onnxport.converters.formulas import Formula


@contextmanager
def computing(mil: MilBuilder, compute: Compute) -> Iterator[None]:
    """Compute floats in another type within."""
    before, mil.compute = mil.compute, compute
    try:
        yield
    finally:
        mil.compute = before


Operand: TypeAlias = "Term | Value | float"


class Term(Formula):
    """A value in arithmetic; plain numbers beside it become constants, whole ones beside integers."""

    def __init__(self, mil: MilBuilder, value: Value) -> None:
        self.mil, self.value = mil, value

    def _argument(self, other: Operand) -> Any:
        if isinstance(other, Term):
            return other.value
        if isinstance(other, Value):
            return other
        return float(other) if self.value.is_float else int(other)

    def binary(self, op: str, other: Operand, /, *, swapped: bool = False) -> Term:
        pair = (self.value, self._argument(other))
        x, y = reversed(pair) if swapped else pair
        return Term(self.mil, self.mil.emit("real_div" if op == "div" else op, x=x, y=y))

    def __neg__(self) -> Term:
        return self * -1

    def call(self, op: str, **parameters: Any) -> Term:
        """Emit MIL's operator `op` with this as its x."""
        return Term(self.mil, self.mil.emit(op, x=self.value, **parameters))

    def __invert__(self) -> Term:
        return self.call("logical_not")

    def where(self, then: Operand, otherwise: Operand) -> Term:
        """Return `then` where this holds, `otherwise` elsewhere; one of the two is no plain number."""
        values = [each.value if isinstance(each, Term) else each for each in (then, otherwise)]
        kind = Term(self.mil, next(each for each in values if isinstance(each, Value)))
        a, b = map(kind._argument, values)
        return Term(self.mil, self.mil.select(cond=self.value, a=a, b=b))

    def where_at_least(self, limit: float, then: Term, otherwise: Operand) -> Term:
        return (self >= limit).where(then, otherwise)

    def whole(self) -> Term:
        """Return this as int32, floats truncated."""
        return self if self.value.is_integer else self.call("cast", dtype="int32")

    def real(self) -> Term:
        """Return this as floats of the type in which the node computes."""
        return self if self.value.is_float else self.call("cast", dtype=self.mil.compute)


def terms(mil: MilBuilder, values: Sequence[Value]) -> list[Term]:
    return [Term(mil, value) for value in values]
