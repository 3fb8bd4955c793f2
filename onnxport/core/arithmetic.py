"""Python's operators over the named operations of a backend: an ONNX graph, a TFLite module, a MIL program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, Self, TypeVar

Operand = TypeVar("Operand")


class Arithmetic(ABC, Generic[Operand]):
    """An expression; each operator on it emits one operation of the backend.

    Operations: add, sub, mul, div, floor_div (towards negative infinity), mod (with the divisor's sign), maximum,
    minimum, less, less_equal, greater, greater_equal, equal, not_equal, logical_and, logical_or, logical_xor.
    """

    __array_ufunc__ = None  # `array * expression` is ours, not NumPy's
    __hash__ = object.__hash__

    @abstractmethod
    def binary(self, op: str, other: Operand, /, *, swapped: bool = False) -> Self:
        """Emit `op` on this and `other`, or on `other` and this if `swapped`."""

    def __add__(self, other: Operand) -> Self:
        return self.binary("add", other)

    def __radd__(self, other: Operand) -> Self:
        return self.binary("add", other, swapped=True)

    def __sub__(self, other: Operand) -> Self:
        return self.binary("sub", other)

    def __rsub__(self, other: Operand) -> Self:
        return self.binary("sub", other, swapped=True)

    def __mul__(self, other: Operand) -> Self:
        return self.binary("mul", other)

    def __rmul__(self, other: Operand) -> Self:
        return self.binary("mul", other, swapped=True)

    def __truediv__(self, other: Operand) -> Self:
        return self.binary("div", other)

    def __rtruediv__(self, other: Operand) -> Self:
        return self.binary("div", other, swapped=True)

    def __floordiv__(self, other: Operand) -> Self:
        return self.binary("floor_div", other)

    def __mod__(self, other: Operand) -> Self:
        return self.binary("mod", other)

    def maximum(self, other: Operand) -> Self:
        return self.binary("maximum", other)

    def minimum(self, other: Operand) -> Self:
        return self.binary("minimum", other)

    def __lt__(self, other: Operand) -> Self:
        return self.binary("less", other)

    def __le__(self, other: Operand) -> Self:
        return self.binary("less_equal", other)

    def __gt__(self, other: Operand) -> Self:
        return self.binary("greater", other)

    def __ge__(self, other: Operand) -> Self:
        return self.binary("greater_equal", other)

    def equals(self, other: Operand) -> Self:
        return self.binary("equal", other)

    def differs(self, other: Operand) -> Self:
        return self.binary("not_equal", other)

    def __and__(self, other: Operand) -> Self:
        return self.binary("logical_and", other)

    def __or__(self, other: Operand) -> Self:
        return self.binary("logical_or", other)

    def __xor__(self, other: Operand) -> Self:
        return self.binary("logical_xor", other)
