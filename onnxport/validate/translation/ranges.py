"""Compare the grids of activations with the values that the reference has there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array, Feeds
from onnxport.formats.model import Model
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.validate.translation.heads import Grid
from onnxport.validate.translation.matching import Match
from onnxport.validate.translation.parameters import Moments, Product

# Values beyond the end of a grid by more than this are cut off; within it, they round to the end.
_REACH = 0.5  # steps
_ROOM = 512 * 2**20  # bytes of values that one run shows
_BYTES = 4


@dataclass
class Coverage:
    """What one grid leaves out of the reference's values.

    Attributes:
        grid, match: the grid, and a value behind it.
        cut: values beyond its ends, of `total`.
        lost, signal: sums of squares of what is cut off, and of all values.
        furthest: the largest distance of a value from the grid, in steps.
    """

    grid: Grid
    match: Match
    cut: int = 0
    total: int = 0
    lost: float = 0.0
    signal: float = 0.0
    furthest: float = 0.0

    def add(self, values: Array) -> None:
        """Count the reference's values, in units of the artefact's."""
        values = values.astype(np.float64)
        beyond = np.maximum(values - self.grid.high, self.grid.low - values)
        low, high = self.match.head.low, self.match.head.high
        beyond = np.where((values >= high) & (self.grid.high >= high), 0.0, beyond)
        beyond = np.where((values <= low) & (self.grid.low <= low), 0.0, beyond)
        outside = beyond > _REACH * self.grid.step
        self.cut += int(np.count_nonzero(outside))
        self.total += values.size
        self.signal += float(np.square(values).sum())
        self.lost += float(np.square(np.where(outside, beyond, 0.0)).sum())
        self.furthest = max(self.furthest, float((beyond / self.grid.step).max(initial=0.0)))

    @property
    def share(self) -> float:
        return self.cut / self.total if self.total else 0.0


class Observation:
    """The reference's values at matched places, one set of inputs after the other.

    Args:
        source: the graph whose values the matches name.
        needed: products whose operand's moments are wanted.

    Attributes:
        coverages: of every grid that a match passes.
        moments: of the operands of `needed`.
    """

    def __init__(self, source: Model, matches: Sequence[Match], needed: Sequence[Product]) -> None:
        self._source = source
        self.coverages = [Coverage(grid, match) for match, grid in _grids(matches)]
        self._axes = {product.operand: product.axis for product in needed}
        self.moments: dict[ir.Value, Moments] = {}
        self._wanted = {each.match.original for each in self.coverages} | set(self._axes)

    def add(self, runtime: OrtRuntime, feeds: Feeds, *, keep: bool) -> dict[str, Array]:
        """Observe one set.

        Args:
            runtime: runs `source`.
            keep: whether to return codes.

        Returns:
            What each grid makes of the reference's values, by the name of its QuantizeLinear's result.
        """
        codes: dict[str, Array] = {}
        names = [value.name or "" for value in self._wanted]
        inner = sorted(name for name in names if name in runtime.taps)
        shown = {**feeds, **runtime.run(feeds, taps=inner)}
        for each in self.coverages:
            values = shown[each.match.original.name or ""]
            converted = each.match.convert(values)
            each.add(converted)
            name = each.grid.codes.name or ""
            if keep and name not in codes:
                dtype = each.grid.codes.dtype
                assert dtype is not None
                codes[name] = each.grid.codes_of(converted).astype(dtype.numpy())
        for value, axis in self._axes.items():
            found = Moments.of(shown[value.name or ""], axis)
            self.moments[value] = self.moments[value].plus(found) if value in self.moments else found
        return codes


def _grids(matches: Sequence[Match]) -> list[tuple[Match, Grid]]:
    """Return every grid once, with the first value that passes it."""
    found: Mapping[ir.Value, tuple[Match, Grid]] = {}
    found = dict(found)
    for match in matches:
        for grid in match.head.grids:
            found.setdefault(grid.codes, (match, grid))
    return list(found.values())
