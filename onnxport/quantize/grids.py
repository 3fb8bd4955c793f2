"""Grids: the scale and zero point of quantized values (Jacob et al. 2018, section 2.1).

x = scale * (q - zero_point); 0 lies on every grid, since padding and Relu depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from onnxport.core.arrays import Array

Floats = np.ndarray[Any, np.dtype[np.float32]]
Dtype = Literal["uint8", "int8", "int16"]

WEIGHT_LIMIT = 127  # of int8 weights; without -128 two products fit into 16 bits (ONNX Runtime, gemmlowp)
# A scale below this is not normal, or its products with another are not: what is so small is 0.
_LEAST_SCALE = np.float32(2.0**-80)
# Steps in a shift: with 2, the scale changes by a quarter at most.
_FEWEST_STEPS = 2
# Of the largest scale in a weight: a channel below that has no part in a result of 8 bits.
_NEXT_TO_NOTHING = np.float32(2.0**-20)


@dataclass(frozen=True)
class Grid:
    """The grid of an activation."""

    scale: np.float32  # float32, positive
    zero_point: int  # the integer that stands for 0
    dtype: Dtype  # "uint8", "int8" or "int16"

    @property
    def low(self) -> float:
        """The smallest number on the grid."""
        return float(self.scale) * (int(np.iinfo(self.dtype).min) - self.zero_point)

    @property
    def high(self) -> float:
        """The largest number on the grid."""
        return float(self.scale) * (int(np.iinfo(self.dtype).max) - self.zero_point)

    def moved(self, factor: float, shift: float) -> Grid:
        """Return the grid on which the same integers mean factor * number + shift, to half a step."""
        if (factor, shift) == (1, 0):
            return self
        scale, limits = _scale(float(self.scale) * factor), np.iinfo(self.dtype)
        zero_point = round(self.zero_point - shift / float(scale))
        return Grid(scale, int(np.clip(zero_point, limits.min, limits.max)), self.dtype)

    def align_to(self, shift: float) -> Grid:
        """Return the grid with the nearest scale of which `shift`, positive, is a multiple.

        Values moved by it then keep their integers exactly. The grid is unchanged where the scale would change by more
        than a quarter, and in 16 bits, where the zero point does not move.
        """
        count = round(shift / float(self.scale))
        if count < _FEWEST_STEPS or self.dtype == "int16":
            return self
        scale, limits = _scale(shift / count), np.iinfo(self.dtype)
        zero_point = round(float(limits.min) - self.low / float(scale))
        return replace(self, scale=scale, zero_point=int(np.clip(zero_point, limits.min, limits.max)))

    def quantized(self, values: Floats) -> Array:
        """Return the integers nearest to `values`, halves to even (ONNX QuantizeLinear-13)."""
        limits = np.iinfo(self.dtype)
        rounded = np.rint(values / self.scale) + self.zero_point
        return np.asarray(np.clip(rounded, limits.min, limits.max), self.dtype)


@dataclass(frozen=True)
class WeightGrid:
    """The grid of a weight: symmetric, integers -127 to 127."""

    scales: Floats  # float32, positive; shape (channels,), or () for one scale
    axis: int | None  # along which the scales lie; None for one scale

    def along(self, rank: int) -> Floats:
        """Return the scales in a shape that broadcasts with a weight of `rank` dimensions."""
        if self.axis is None:
            return self.scales
        return self.scales.reshape([-1 if axis == self.axis % rank else 1 for axis in range(rank)])

    def quantized(self, values: Floats) -> np.ndarray[Any, np.dtype[np.int8]]:
        """Return the integers nearest to `values`."""
        scaled = values / self.along(values.ndim)
        return np.clip(np.rint(scaled, out=scaled), -WEIGHT_LIMIT, WEIGHT_LIMIT, out=scaled).astype(np.int8)


def activation_grid(low: float, high: float, dtype: Dtype) -> Grid:
    """Return the grid of the range from `low` to `high` and 0; int16 grids are symmetric, as TFLite requires."""
    low, high = min(float(low), 0.0), max(float(high), 0.0)
    limits = np.iinfo(dtype)
    if dtype == "int16":
        return Grid(_scale(max(-low, high) / limits.max), 0, dtype)
    scale = _scale((high - low) / (int(limits.max) - int(limits.min)))
    zero_point = round(float(limits.min) - low / float(scale))
    return Grid(scale, int(np.clip(zero_point, limits.min, limits.max)), dtype)


def weight_grid(values: Floats, axis: int | None) -> WeightGrid:
    """Return the grid that reaches the largest magnitude of each channel along `axis`."""
    others = (
        None if axis is None else tuple(each for each in range(values.ndim) if each != axis % values.ndim)
    )
    largest = np.abs(values).max(axis=others, initial=0.0)
    return symmetric_grid(largest, axis)


def symmetric_grid(limits: Floats, axis: int | None) -> WeightGrid:
    """Return the grid from -limits to limits.

    A channel of zeros, or of next to nothing, gets the largest scale: its bias is then as precise as the others', and
    no runtime multiplies by less than its integers can express. The loss is invisible in 8 bits of the result.
    """
    scales = np.asarray(limits, np.float32) / np.float32(WEIGHT_LIMIT)
    largest = scales.max(initial=0.0)
    return WeightGrid(np.where(scales <= largest * _NEXT_TO_NOTHING, _scale(largest), scales), axis)


@dataclass(frozen=True)
class QuantizedWeight:
    """A weight in integers."""

    values: np.ndarray[Any, np.dtype[np.int8]]  # int8, of the weight's shape
    grid: WeightGrid  # what they stand for

    @property
    def floats(self) -> Floats:
        """The dequantized weight."""
        return self.values * self.grid.along(self.values.ndim)


def _scale(wanted: float) -> np.float32:
    """Return the scale as float32; 1 for the range [0, 0]."""
    scale = np.float32(wanted)
    return np.float32(1) if scale < _LEAST_SCALE else scale


# Half of what int32 holds: the sum of the products needs the rest, and a correction may come.
_LIMIT = np.float64(2.0**30)


@dataclass(frozen=True)
class QuantizedBias:
    """A bias in integers."""

    values: np.ndarray[Any, np.dtype[np.int32]]  # int32, shape (channels,)
    scales: Floats  # float32, one for each channel or a single one


def quantize_bias(bias: Floats, data: Grid, weight: WeightGrid) -> QuantizedBias:
    """Quantize the bias of a product of data on the grid `data` and a weight on the grid `weight`."""
    scales = (data.scale * weight.scales).astype(np.float32)
    limits = np.iinfo(np.int32)
    rounded = np.clip(np.rint(np.float64(bias) / scales), limits.min, limits.max)
    return QuantizedBias(rounded.astype(np.int32), scales)


def widen_for_bias(weight: WeightGrid, bias: Floats, data: Grid) -> WeightGrid:
    """Return `weight` with larger scales where `bias` would not fit into int32.

    This is so for channels whose weights are next to nothing: what they lose is far below a step of the result.
    """
    needed = np.abs(np.float64(bias)) / (float(data.scale) * _LIMIT)
    if weight.axis is None:
        needed = needed.max(initial=0.0)
    if np.all(needed <= weight.scales):
        return weight
    return replace(weight, scales=np.maximum(weight.scales, needed).astype(np.float32))
