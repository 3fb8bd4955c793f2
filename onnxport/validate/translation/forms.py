"""What a normal form consists of: a core, what follows it, and the grids between (heads.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.validate.translation.operators import Operand
from onnxport.validate.translation.rounding_bounds import NOTHING, ONE, Rounded


@dataclass(frozen=True)
class Grid:
    """A QuantizeLinear that a value passes.

    Attributes:
        codes: its result.
        scale, zero_point: its own, one for all or one for each channel, so that they broadcast with the value.
        limits: of its integer type.
        low, high: the smallest and the largest number on it, in units of the value that passed it.
        step: the distance of two of its numbers in these units.
        factor, offset: value = factor * (what was quantized) + offset.
    """

    codes: ir.Value
    scale: Array
    zero_point: Array
    limits: tuple[int, int]
    low: Array
    high: Array
    step: Array
    factor: Array
    offset: Array

    def moved(self, factor: Array, offset: Array) -> Grid:
        """Return the grid in units of factor * value + offset."""
        ends = self.low * factor + offset, self.high * factor + offset
        return replace(
            self,
            low=np.minimum(*ends),
            high=np.maximum(*ends),
            step=np.abs(self.step * factor),
            factor=self.factor * factor,
            offset=self.offset * factor + offset,
        )

    def codes_of(self, values: Array) -> Array:
        """Return the integers that this grid has for numbers in units of the value (ONNX QuantizeLinear-13)."""
        moved = values.astype(np.float64) - self.offset
        # Of a channel that is multiplied by 0 nothing says what it was.
        factor = np.broadcast_to(self.factor, moved.shape)
        raw = np.divide(moved, factor, out=np.zeros(moved.shape), where=factor != 0)
        rounded = np.rint(raw / self.scale) + self.zero_point
        return np.asarray(np.clip(rounded, *self.limits))


@dataclass(frozen=True, eq=False)
class Core:
    """An operator whose result is no simple function of one operand, element by element.

    Attributes:
        value: its result before what follows it.
        op: ONNX's name, "Input", or "Constant".
        attributes: normalized, with their defaults.
        operands: values, constants, or None for a missing one.
        weight, bias: of a product, with everything folded into them.
    """

    value: ir.Value
    op: str
    attributes: Mapping[str, Any]
    operands: tuple[Operand, ...] = ()
    weight: Rounded | None = None
    bias: Rounded | None = None

    @property
    def label(self) -> str:
        """The operator and its node's name, for a report."""
        node = self.value.producer()
        name = (node.name if node is not None else None) or self.value.name
        return f"{self.op} {name!r}"


@dataclass(frozen=True, eq=False)
class Head:
    """A value's normal form; see the module.

    Attributes:
        scale, shift, low, high: arrays that broadcast with the value.
        grids: those that it passes, the first first.
        casts: floating types of fewer bits that it passes.
        rank: of the core's result; None where unknown.
    """

    core: Core
    scale: Rounded = ONE
    shift: Rounded = NOTHING
    low: Array = field(default_factory=lambda: np.asarray(-np.inf))
    high: Array = field(default_factory=lambda: np.asarray(np.inf))
    grids: tuple[Grid, ...] = ()
    casts: tuple[str, ...] = ()
    rank: int | None = None

    def stretched(self, factor: Rounded, offset: Rounded = NOTHING) -> Head:
        """Return factor * value + offset."""
        by = factor.values
        with np.errstate(invalid="ignore"):  # no bound, times 0
            ends = [each * by + offset.values for each in (self.low, self.high)]
        return replace(
            self,
            scale=self.scale.times(factor),
            shift=self.shift.times(factor).plus(offset),
            # Bounds of what became a constant are none.
            low=np.where(by == 0, -np.inf, np.minimum(*ends)),
            high=np.where(by == 0, np.inf, np.maximum(*ends)),
            grids=tuple(each.moved(by, offset.values) for each in self.grids),
        )

    def clamped(self, low: float, high: float) -> Head:
        """Return the value between two bounds."""
        return replace(self, low=np.clip(self.low, low, high), high=np.clip(self.high, low, high))
