"""What formulas that every target shares are written in."""

from __future__ import annotations

from typing import Protocol, Self


class Formula(Protocol):
    """A target's tensor under arithmetic as one writes it; plain numbers beside it stand for that number everywhere."""

    def __add__(self, other: Self | float, /) -> Self: ...

    def __sub__(self, other: Self | float, /) -> Self: ...

    def __mul__(self, other: Self | float, /) -> Self: ...

    def __truediv__(self, other: Self | float, /) -> Self: ...

    def __neg__(self) -> Self: ...

    def maximum(self, other: Self | float, /) -> Self: ...

    def minimum(self, other: Self | float, /) -> Self: ...

    def where_at_least(self, limit: float, then: Self, otherwise: Self | float, /) -> Self:
        """`then` where this is `limit` or more, `otherwise` elsewhere."""

    def call(self, op: str, /) -> Self:
        """The target's operator `op` of this alone."""
