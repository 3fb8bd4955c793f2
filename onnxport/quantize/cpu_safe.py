"""Weights whose sums saturate on no CPU: x86 without VNNI adds pairs of products in 16 bits.

Weights of 7 bits never leave 16 bits (`reduce_range`), and lose 6 dB. But only 255 times the sum of two neighbours
along the depth has to fit. So a channel's step grows only as far as its largest such sum asks, and only in products
that saturate on samples. u8 by u8, exact on every CPU as well, takes 1.4 times as long there and twice as long with
VNNI.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnxport.formats.model import Model
from onnxport.quantize.grids import Floats, WeightGrid
from onnxport.samples.readers import SampleFile
from onnxport.validate import saturation

# A product whose result keeps this much loses less to saturation than to its own rounding.
_HARMLESS = 45.0  # dB
_SAMPLES = 8
# Rounding may carry a sum one further.
_MARGIN = 0.5


def find_saturating_products(model: Model, files: Sequence[SampleFile]) -> frozenset[str]:
    """Return the names of products that saturate on the samples and lose accuracy by it."""
    made = saturation.emulate(model)
    if made is None:
        return frozenset()
    sets = [dict(file.load().feeds) for file in files[:_SAMPLES]]
    return frozenset(each.node for each in saturation.measure_losses(*made, sets) if each.sqnr_db < _HARMLESS)


def widen_grid(grid: WeightGrid, values: Floats, node: ir.Node) -> WeightGrid:
    """Return `grid` with steps so large that no two neighbouring weights of `node` can saturate."""
    transposed = "transB" in node.attributes and node.attributes["transB"].as_int() == 1
    codes = saturation.depth_first(grid.quantized(values), node.op_type, transposed=transposed)
    largest = np.abs(saturation.pair_sums(codes)).max(axis=1, initial=0)
    if grid.scales.size != len(largest):
        largest = largest.max(initial=0)
    beyond = largest > saturation.MOST
    if not beyond.any():
        return grid
    factor = np.where(beyond, (largest + _MARGIN) / (saturation.MOST - _MARGIN), 1.0)
    return widen_grid(replace(grid, scales=(grid.scales * factor).astype(np.float32)), values, node)


def reduce_grid(grid: WeightGrid) -> WeightGrid:
    """Return `grid` with 7 bits: the integers -63 to 63."""
    return replace(grid, scales=(grid.scales * np.float32(127 / 63)).astype(np.float32))
