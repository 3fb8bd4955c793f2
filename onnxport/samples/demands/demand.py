"""A demand on the values of one tensor."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

# How the elements of a tensor depend on each other.
Structure = Literal["", "distinct", "distinct-rows", "distinct-all", "corners", "special"]


@dataclass(frozen=True)
class Demand:
    """The values that an operator is defined for.

    Attributes:
        low, high: inclusive bounds.
        nonzero: whether 0 is excluded.
        is_index: whether every integer within the bounds is meaningful, as of an index.
        is_length: whether the values count the valid steps of a row.
        columns: a higher bound, exclusive, per element of the last axis; for indices of several axes.
        structure: "distinct" along `axis`; "distinct-rows" of the last axis; "distinct-all"; "corners" of boxes, two
            each on the last axis; "special" for infinities and NaN among the numbers.
        axis: of "distinct".
        node: what demands it, for messages.
    """

    low: float = -math.inf
    high: float = math.inf
    nonzero: bool = False
    is_index: bool = False
    is_length: bool = False
    columns: tuple[int, ...] = ()
    structure: Structure = ""
    axis: int = 0
    node: str = ""

    @property
    def is_empty(self) -> bool:
        return self == Demand(node=self.node)

    def meet(self, other: Demand | None) -> Demand:
        """Return the demand that holds both; the structure is that of the first that has one."""
        if other is None:
            return self
        return replace(
            self if self.structure or not other.structure else other,
            low=max(self.low, other.low),
            high=min(self.high, other.high),
            nonzero=self.nonzero or other.nonzero,
            is_index=self.is_index or other.is_index,
            is_length=self.is_length or other.is_length,
            columns=self.columns or other.columns,
            node=self.node or other.node,
        )
