"""Compare the grids of activations with the ranges that a file declares, and with the values that the reference has.

Quantizers cut off on purpose: a range of the least error leaves out what is rare (Nagel et al. 2021, section 3.1). So
what a grid cuts off of the fed values is told, and is no fault. A file of ours declares the ranges that its calibration
chose, and each grid has to reach them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array, Feeds
from onnxport.formats.quantization_note import QuantizationNote
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.validate.translation.findings import Finding
from onnxport.validate.translation.forms import Grid
from onnxport.validate.translation.least_error import ROWS, operand_rows
from onnxport.validate.translation.matches import Match
from onnxport.validate.translation.parameters import Moments, Product

# Values beyond the end of a grid by more than this are cut off; within it, they round to the end.
_REACH = 0.5  # steps
_STEP = 1.01  # by which rounding a zero point moves the ends
# Of the sum of squares: a grid that cuts off more is none that a calibration chose on such values.
_LOST = 0.25
_CODES = ".quantized"
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
        low, high = self.match.head.low, self.match.head.high
        if np.isfinite(low).any() or np.isfinite(high).any():
            values = np.clip(values, low, high)
        self.total += values.size
        self.signal += float(np.linalg.norm(values.reshape(-1))) ** 2
        if self._holds(values):
            return
        values = values.astype(np.float64)
        beyond = np.maximum(np.maximum(values - self.grid.high, self.grid.low - values), 0.0)
        step = np.broadcast_to(self.grid.step, values.shape)
        outside = (beyond > _REACH * step) & (step > 0)
        self.cut += int(np.count_nonzero(outside))
        self.lost += float(np.square(np.where(outside, beyond, 0.0)).sum())
        if outside.any():
            self.furthest = max(self.furthest, float((beyond[outside] / step[outside]).max()))

    def _holds(self, values: Array) -> bool:
        """Return whether no value lies beyond a grid that is the same for all of them."""
        grid = self.grid
        ends = [np.unique(each) for each in (grid.low, grid.high, grid.step)]
        if not values.size or any(each.size != 1 for each in ends):
            return False
        low, high, step = (float(each[0]) for each in ends)
        return low - _REACH * step <= float(values.min()) and float(values.max()) <= high + _REACH * step

    @property
    def loss(self) -> float:
        """The sum of squares of what is cut off, as a share of that of all values."""
        return self.lost / self.signal if self.signal else 0.0

    @property
    def share(self) -> float:
        return self.cut / self.total if self.total else 0.0


class Observation:
    """The reference's values at matched places, one set of inputs after the other.

    Args:
        matches: of the artefact's values.
        needed: products whose operand's moments are wanted.
        moved: products whose operand's rows are wanted, since their weight is not rounded to nearest.
        places: name of a float value of the artefact, at which it is cut, to its match.

    Attributes:
        coverages: of every grid that a match passes.
        moments: of the operands of `needed`.
    """

    def __init__(
        self,
        matches: Sequence[Match],
        needed: Sequence[Product],
        moved: Sequence[Product],
        places: Mapping[str, Match],
    ) -> None:
        self.needed, self._places, self._moved = needed, places, moved
        self._rows: dict[ir.Value, list[Array]] = {}
        self.coverages = [Coverage(grid, match) for match, grid in _grids(matches)]
        self._axes = {product.operand: product.axis for product in needed}
        self.moments: dict[ir.Value, Moments] = {}
        matched = {each.match.original for each in self.coverages} | {
            each.original for each in places.values()
        }
        self._wanted = matched | set(self._axes) | {each.operand for each in moved}
        self._groups: list[list[str]] = []

    @property
    def rows(self) -> dict[ir.Value, Array]:
        """Rows of the operands of `moved`, by the product's source."""
        return {value: np.concatenate(rows) for value, rows in self._rows.items()}

    def add(self, runtime: OrtRuntime, feeds: Feeds, *, keep: bool) -> dict[str, Array]:
        """Observe one set.

        Args:
            runtime: runs the source.
            keep: whether to return codes.

        Returns:
            What each grid makes of the reference's values, by the name of its QuantizeLinear's result; and the
            reference's values at float places.
        """
        codes: dict[str, Array] = {}
        if not self._groups:
            self._groups = self._divided(runtime, feeds)
        for group in self._groups:
            shown = {**feeds, **runtime.run(feeds, taps=[name for name in group if name in runtime.taps])}
            codes |= self._add_some(group, shown, keep=keep)
        return codes

    def _divided(self, runtime: OrtRuntime, feeds: Feeds) -> list[list[str]]:
        """Return the wanted values in groups that fit into memory, by the sizes that the graph declares.

        An open dimension counts as 1, and all values as larger by what the inputs are larger than so.
        """
        declared = sum(
            math.prod(each for each in spec.shape or () if isinstance(each, int)) for spec in runtime.inputs
        )
        growth = max(1.0, sum(array.size for array in feeds.values()) / max(declared, 1))
        groups: list[list[str]] = [[]]
        taken = 0.0
        for value in sorted(self._wanted, key=lambda each: each.name or ""):
            dims = () if value.shape is None else value.shape.dims
            size = _BYTES * growth * math.prod(each for each in dims if isinstance(each, int))
            if groups[-1] and taken + size > _ROOM:
                groups.append([])
                taken = 0.0
            groups[-1].append(value.name or "")
            taken += size
        return groups

    def _add_some(self, group: Collection[str], shown: Feeds, *, keep: bool) -> dict[str, Array]:
        """Count the values of a group."""
        codes: dict[str, Array] = {}
        for each in self.coverages:
            if each.match.original.name not in group:
                continue
            values = shown[each.match.original.name or ""]
            converted = each.match.convert(values)
            each.add(converted)
            name = each.grid.codes.name or ""
            if keep and name not in codes:
                dtype = each.grid.codes.dtype
                assert dtype is not None
                codes[name] = each.grid.codes_of(converted).astype(dtype.numpy())
        for name, match in self._places.items() if keep else ():
            if match.original.name not in group:
                continue
            values = match.convert(shown[match.original.name or ""])
            dtype = match.value.dtype if match.value.name == name else None
            codes[name] = values.astype(np.float32 if dtype is None else dtype.numpy())
        for product in self._moved:
            counted = sum(map(len, self._rows.get(product.source.value, ())))
            if product.operand.name not in group or (counted >= ROWS and not keep):
                continue
            rows = operand_rows(product.core, shown[product.operand.name or ""])
            if rows is not None:
                self._rows.setdefault(product.source.value, []).append(rows)
        for value, axis in self._axes.items():
            if value.name not in group:
                continue
            found = Moments.of(shown[value.name or ""], axis)
            self.moments[value] = self.moments[value].plus(found) if value in self.moments else found
        return codes


def check_grids(
    coverages: Sequence[Coverage], note: QuantizationNote | None, *, is_sure: bool
) -> Iterator[Finding]:
    """Yield the grids that do not reach what they were made for.

    Args:
        note: what the artefact declares.
        is_sure: whether the values are of samples, as a calibration may have seen them.
    """
    for each in coverages:
        label = each.match.head.core.label
        name = (each.grid.codes.name or "").removesuffix(_CODES)
        if note is not None and name in note.ranges:
            low, high = note.ranges[name]
            grid = each.grid
            ends = [grid.scale * (limit - grid.zero_point) for limit in grid.limits]
            missing = float(np.max(np.maximum(ends[0] - low, high - ends[1]) / grid.scale))
            if missing > _STEP:
                text = f"its grid ends {missing:.0f} steps short of {low:.6g} to {high:.6g}, which calibration chose"
                yield Finding(label, text, "fault")
        elif is_sure and each.loss > _LOST:
            text = f"its grid cuts off {each.loss:.0%} of the energy of the values fed, in {each.share:.2%} of them"
            yield Finding(label, text, "doubt")


def _grids(matches: Sequence[Match]) -> list[tuple[Match, Grid]]:
    """Return every grid once, with the first value that passes it."""
    found: Mapping[ir.Value, tuple[Match, Grid]] = {}
    found = dict(found)
    for match in matches:
        for grid in match.head.grids:
            found.setdefault(grid.codes, (match, grid))
    return list(found.values())
