"""A weight of any operator as rows: a row is what one result sums over."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from onnxport.core.arrays import Array


@dataclass(frozen=True)
class Layout:
    """The axes of a weight that are summed over."""

    shape: tuple[int, ...]  # of the weight
    summed: tuple[int, ...]  # the axes inside a row, ascending; the others tell the rows apart

    @property
    def kept(self) -> tuple[int, ...]:
        return tuple(axis for axis in range(len(self.shape)) if axis not in self.summed)

    @property
    def row(self) -> int:
        """The number of elements of a row."""
        return prod(self.shape[axis] for axis in self.summed)

    @property
    def channel_axis(self) -> int | None:
        """The one axis that tells rows apart; None where several do: no operator has per-axis scales then."""
        several = [axis for axis in self.kept if self.shape[axis] > 1]
        if len(several) > 1 or not self.kept:
            return None
        return several[0] if several else self.kept[0]

    def rows(self, weight: Array) -> Array:
        """Return `weight` as [rows, row]; a view where possible."""
        return weight.transpose(*self.kept, *self.summed).reshape(-1, self.row)

    def restored(self, rows: Array) -> Array:
        """Reshape rows back to the weight's shape; with several values a row, along a single summed axis."""
        sizes = [self.shape[axis] for axis in self.kept]
        inner = [self.shape[axis] for axis in self.summed] if rows.shape[1] == self.row else [rows.shape[1]]
        order = np.argsort((*self.kept, *self.summed))
        return np.ascontiguousarray(rows.reshape(*sizes, *inner).transpose(*order))
