"""The interface of a target's tensors in the formulas that all targets share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

from onnxport.core.arithmetic import Arithmetic


class Formula(Arithmetic[Any]):
    """A tensor of a target in float arithmetic; a plain number stands for a constant that broadcasts."""

    @abstractmethod
    def __neg__(self) -> Self: ...

    @abstractmethod
    def where_at_least(self, limit: float, then: Self, otherwise: Self | float) -> Self:
        """Return `then` where this is `limit` or more, `otherwise` elsewhere."""

    @abstractmethod
    def call(self, op: str, /) -> Self:
        """Emit the target's operator `op` on this alone."""


class IntegerFormula(Arithmetic[Any]):
    """A target's tensor of int32, or of bool for a condition: sizes, bounds, axes and indices."""

    @abstractmethod
    def where(self, then: Any, otherwise: Any) -> Self:
        """Return `then` where this condition holds, `otherwise` elsewhere."""

    @abstractmethod
    def as_numbers(self) -> Self:
        """Return 1 where this condition holds, 0 elsewhere."""

    @abstractmethod
    def sum(self, axis: int) -> Self: ...

    @abstractmethod
    def running_sum(self) -> Self:
        """Return, for each element of a vector, the sum of the elements up to it."""

    @abstractmethod
    def column(self) -> Self:
        """Return a vector as the column of a matrix."""

    def within(self, size: Self | int) -> Self:
        """Return indices with `size` added to the negative ones."""
        return (self < 0).where(self + size, self)
