"""Weights as rows, and rows as integers: the grids of a row, and the integers, scales and zero points."""

from __future__ import annotations

from collections.abc import Iterator
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


# Rows are worked on in portions of so many elements: a large weight is not held in memory several times.
PORTION = 1 << 21


@dataclass(frozen=True)
class Grids:
    """The integer grids of weights."""

    bits: int  # 4, 7 or 8
    block: int  # how many neighbours of a row share a scale; the whole row where it is that long
    symmetric: bool  # signed and without a zero point; else unsigned and with one

    @property
    def lowest(self) -> int:
        return -(1 << (self.bits - 1)) if self.symmetric else 0

    @property
    def highest(self) -> int:
        return self.lowest + (1 << self.bits) - 1

    @property
    def dtype(self) -> type[np.int8] | type[np.uint8]:
        """The dtype in memory: four bits take a byte each until they are written."""
        return np.int8 if self.symmetric else np.uint8


@dataclass(frozen=True)
class Encoding:
    """Integers of rows of weights: weight = (number - zero point) * scale."""

    grids: Grids
    numbers: Array  # [rows, n] int8 or uint8
    scales: Array  # [rows, blocks] float32, not 0 and maybe negative; the last block of a row may be shorter
    zero_points: Array  # [rows, blocks] like the numbers; all 0 where the grids are symmetric

    def weights(self) -> Array:
        """Return [rows, n] float32, computed as DequantizeLinear does."""
        found = np.empty(self.numbers.shape, np.float32)
        n = self.numbers.shape[-1]
        for part in row_slices(self.numbers):
            scales, zero_points = (
                repeat_blocks(each[part], self.grids.block, n) for each in (self.scales, self.zero_points)
            )
            found[part] = (self.numbers[part].astype(np.float32) - zero_points) * scales
        return found

    def error(self, rows: Array) -> float:
        """Return the sum of squared differences from `rows`."""
        found = self.weights()
        return sum(
            float(np.square(rows[part] - found[part]).sum(dtype=np.float64)) for part in row_slices(rows)
        )


def concatenate(grids: Grids, parts: list[Encoding]) -> Encoding:
    """Concatenate rows."""
    numbers, scales, zero_points = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("numbers", "scales", "zero_points")
    )
    return Encoding(grids, numbers, scales, zero_points)


def repeat_blocks(of_blocks: Array, block: int, n: int) -> Array:
    """Repeat [rows, blocks] to [rows, n]."""
    return np.repeat(of_blocks, block, axis=1)[:, :n]


def split_blocks(rows: Array, block: int) -> Array:
    """Reshape [rows, n] to [rows * blocks, block]; pad the last block of each row with zeros."""
    if missing := -rows.shape[1] % block:
        rows = np.pad(rows, ((0, 0), (0, missing)))
    return rows.reshape(-1, block)


def row_slices(rows: Array) -> Iterator[slice]:
    """Return slices of rows of about PORTION elements."""
    step = max(1, PORTION // max(1, rows.shape[1]))
    return (slice(start, start + step) for start in range(0, len(rows), step))
