"""Formulas over elements: arithmetic written as arithmetic, each operator one of MIL's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True)
class Elements:
    """The elements of one value under a formula; numbers stand for that number everywhere."""

    mil: MilBuilder
    value: Value

    def call(self, name: str, **parameters: Any) -> Elements:
        """`mil.<name>` of these elements."""
        return Elements(self.mil, self.mil.emit(name, x=self.value, **parameters))

    def _with(self, name: str, other: Elements | float) -> Elements:
        return self.call(name, y=other.value if isinstance(other, Elements) else float(other))

    def __add__(self, other: Elements | float) -> Elements:
        return self._with("add", other)

    def __sub__(self, other: Elements | float) -> Elements:
        return self._with("sub", other)

    def __mul__(self, other: Elements | float) -> Elements:
        return self._with("mul", other)

    def __truediv__(self, other: Elements | float) -> Elements:
        return self._with("real_div", other)

    def __neg__(self) -> Elements:
        return self * -1.0

    def maximum(self, other: Elements | float) -> Elements:
        return self._with("maximum", other)

    def minimum(self, other: Elements | float) -> Elements:
        return self._with("minimum", other)

    def where_at_least(self, limit: float, then: Elements, otherwise: Elements | float) -> Elements:
        """`then` where these elements are `limit` or more, `otherwise` elsewhere."""
        reached = self._with("greater_equal", limit).value
        b = otherwise.value if isinstance(otherwise, Elements) else float(otherwise)
        return Elements(self.mil, self.mil.select(cond=reached, a=then.value, b=b))
