"""Biases in int32, at the scales of the products that they are added to (Jacob et al. 2018, section 2.4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnxport.quantize.grids import Floats, Grid, WeightGrid

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
