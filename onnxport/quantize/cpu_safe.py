"""Weights whose sums saturate on no CPU: x86 without VNNI adds pairs of products in 16 bits.

Weights of 7 bits never leave 16 bits (`reduce_range`), and lose 6 dB. But only the sums of two neighbours along the
depth have to fit, each weight times the largest integer that its channel of the activation reaches on the samples. So
an output channel's step grows only as far as its largest such sum asks; most of them keep 8 bits. u8 by u8, exact on
every CPU as well, takes 1.4 times as long there and twice as long with VNNI.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.quantize.grids import Floats, Grid, WeightGrid
from onnxport.validate import saturation

_LIMIT = 2**15 - 1
# Rounding may carry a sum of two products further by half of the largest integer each.
_ROUNDING = 255.0
# Weights whose products are computed at a time: those of large layers took as much memory as all else.
_TOGETHER = 1 << 18


def can_saturate(node: ir.Node, values: Floats) -> bool:
    """Return whether kernels add the products of a node in pairs; depthwise convolutions and stacks do not."""
    if node.op_type == "Conv":
        return not (values.shape[1] == 1 and node.attributes.get_int("group", 1) > 1)
    return values.ndim == 2


def largest_integers(maxima: Array, grid: Grid) -> Array:
    """Return int64[channels]: the largest integer of each channel of an activation.

    No margin: two channels hardly ever reach their maxima at one place. Calibrated on four samples, MobileNetV2,
    EfficientNet-Lite0 and PP-OCRv4 det have the same SQNR to 0.1 dB with sums that saturate, on samples not seen.

    Args:
        maxima: float32[channels], the greatest values on the samples.
    """
    return np.maximum(grid.quantized(maxima).astype(np.int64), grid.zero_point)  # padding has the latter


def widen_grid(grid: WeightGrid, values: Floats, node: ir.Node, largest: Array) -> WeightGrid:
    """Return `grid` with steps so large that no two neighbouring products of `node` can saturate.

    Args:
        largest: of each channel of the activation, see `largest_integers`.
    """
    most = _largest_sums(grid.quantized(values), node, largest)
    if grid.scales.size != len(most):
        most = most.max(initial=0)
    beyond = most > _LIMIT
    if not beyond.any():
        return grid
    factor = np.where(beyond, (most + _ROUNDING) / (_LIMIT - _ROUNDING), 1.0)
    return widen_grid(replace(grid, scales=(grid.scales * factor).astype(np.float32)), values, node, largest)


def _largest_sums(codes: Array, node: ir.Node, largest: Array) -> Array:
    """Return int64[output channels]: the largest magnitude of a sum of two neighbouring products of each."""
    groups = node.attributes.get_int("group", 1) if node.op_type == "Conv" else 1
    transposed = node.attributes.get_int("transB", 0) == 1
    rows = saturation.depth_first(codes, node.op_type, transposed=transposed)
    inputs = largest.reshape(groups, -1).astype(np.int32)
    of_row = np.arange(len(rows)) // (len(rows) // groups)
    together = max(1, _TOGETHER // max(rows.shape[1], 1))
    found = [np.zeros(0, np.int64)]
    for start in range(0, len(rows), together):
        part = rows[start : start + together]
        # Input channels are innermost, and repeat for every tap of a window.
        taps = part.reshape(len(part), -1, inputs.shape[1])
        products = (taps * inputs[of_row[start : start + together], None, :]).reshape(part.shape)
        above = saturation.pair_sums(np.maximum(products, 0)).max(axis=1, initial=0)
        below = saturation.pair_sums(np.minimum(products, 0)).min(axis=1, initial=0)
        found.append(np.maximum(above, -below).astype(np.int64))
    return np.concatenate(found)


def reduce_grid(grid: WeightGrid) -> WeightGrid:
    """Return `grid` with 7 bits: the integers -63 to 63."""
    return replace(grid, scales=(grid.scales * np.float32(127 / 63)).astype(np.float32))
