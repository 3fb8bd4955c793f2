"""Formulas over MIL values: arithmetic as one writes it, each operator one of MIL's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from onnxport.converters.coreml.builder import Compute, MilBuilder
from onnxport.converters.coreml.values import Value


@contextmanager
def computing(mil: MilBuilder, compute: Compute) -> Iterator[None]:
    """Lets floats be computed in another type for a while."""
    before, mil.compute = mil.compute, compute
    try:
        yield
    finally:
        mil.compute = before


Operand: TypeAlias = "Term | Value | float"


class Term:
    """A value under a formula; plain numbers beside it become constants of its kind, whole for integers."""

    def __init__(self, mil: MilBuilder, value: Value) -> None:
        self.mil, self.value = mil, value

    def _given(self, other: Operand) -> Any:
        if isinstance(other, Term):
            return other.value
        if isinstance(other, Value):
            return other
        return float(other) if self.value.is_float else int(other)

    def _with(self, op: str, other: Operand) -> Term:
        return Term(self.mil, self.mil.emit(op, x=self.value, y=self._given(other)))

    def _under(self, op: str, other: Operand) -> Term:
        return Term(self.mil, self.mil.emit(op, x=self._given(other), y=self.value))

    def __add__(self, other: Operand) -> Term:
        return self._with("add", other)

    def __sub__(self, other: Operand) -> Term:
        return self._with("sub", other)

    def __rsub__(self, other: Operand) -> Term:
        return self._under("sub", other)

    def __mul__(self, other: Operand) -> Term:
        return self._with("mul", other)

    def __truediv__(self, other: Operand) -> Term:
        return self._with("real_div", other)

    def __rtruediv__(self, other: Operand) -> Term:
        return self._under("real_div", other)

    def __floordiv__(self, other: Operand) -> Term:
        """Rounded towards negative infinity."""
        return self._with("floor_div", other)

    def __mod__(self, other: Operand) -> Term:
        """With the divisor's sign."""
        return self._with("mod", other)

    def __neg__(self) -> Term:
        return self * -1

    def __lt__(self, other: Operand) -> Term:
        return self._with("less", other)

    def __gt__(self, other: Operand) -> Term:
        return self._with("greater", other)

    def __ge__(self, other: Operand) -> Term:
        return self._with("greater_equal", other)

    def __le__(self, other: Operand) -> Term:
        return self._with("less_equal", other)

    def equals(self, other: Operand) -> Term:
        return self._with("equal", other)

    def differs(self, other: Operand) -> Term:
        return self._with("not_equal", other)

    def maximum(self, other: Operand) -> Term:
        return self._with("maximum", other)

    def minimum(self, other: Operand) -> Term:
        return self._with("minimum", other)

    def call(self, op: str, **parameters: Any) -> Term:
        """MIL's operator `op` of this as its x."""
        return Term(self.mil, self.mil.emit(op, x=self.value, **parameters))

    # ---- of conditions

    def __and__(self, other: Term) -> Term:
        return self._with("logical_and", other)

    def __or__(self, other: Term) -> Term:
        return self._with("logical_or", other)

    def __xor__(self, other: Term) -> Term:
        return self._with("logical_xor", other)

    def __invert__(self) -> Term:
        return self.call("logical_not")

    def where(self, then: Operand, otherwise: Operand) -> Term:
        """`then` where this holds, `otherwise` elsewhere; one of the two is no plain number."""
        kind = next(Term(self.mil, e.value if isinstance(e, Term) else e)
                    for e in (then, otherwise) if isinstance(e, Term | Value))  # fmt: skip
        given = [kind._given(each) for each in (then, otherwise)]
        return Term(self.mil, self.mil.select(cond=self.value, a=given[0], b=given[1]))

    def where_at_least(self, limit: float, then: Term, otherwise: Operand) -> Term:
        """`then` where this is `limit` or more, `otherwise` elsewhere."""
        return (self >= limit).where(then, otherwise)

    # ---- from one type to another

    def whole(self) -> Term:
        """As int32, floats cut off toward zero."""
        return self if self.value.is_integer else self.call("cast", dtype="int32")

    def real(self) -> Term:
        """As floats of the type that the node computes in."""
        return self if self.value.is_float else self.call("cast", dtype=self.mil.compute)


def terms(mil: MilBuilder, values: Sequence[Value]) -> list[Term]:
    return [Term(mil, value) for value in values]


def scalar(number: float, dtype: Any) -> Value:
    """A constant of ONNX's `dtype` without axes."""
    return Value((), np.dtype(dtype), constant=np.asarray(number, dtype))
