"""Round to nearest, on the grid with the least squared error.

The scale that just reaches the largest weight of a block rounds all others coarsely. Smaller ones are tried, and the
best is refined: its integers have a least-squares scale, which gives other integers, and so on (as in Lloyd 1982).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxport.core.arrays import Array
from onnxport.quantize.weights.encoding import Encoding, Grids, concatenate, row_slices, split_blocks

# Parts of the scale that reaches the largest weight. Above 1: a signed grid has one number more below zero than above.
_FEW_BITS, _FEW = 4, np.linspace(1.15, 0.6, 12, dtype=np.float32)
_MANY = np.linspace(1.0, 0.6, 9, dtype=np.float32)
_REFINEMENTS = 3


def round_nearest(rows: Array, grids: Grids) -> Encoding:
    """Round `rows` [rows, n] float32 to the best grid of each block."""
    return concatenate(grids, [_portion(rows[part], grids) for part in row_slices(rows)])


def best_grid(blocks: Array, grids: Grids) -> tuple[Array, Array]:
    """Return scale and zero point of each of `blocks` [blocks, n] float32; float32 both, [blocks, 1]."""
    scales, zero_points = _best(blocks, grids, _FEW if grids.bits <= _FEW_BITS else _MANY)
    for _ in range(_REFINEMENTS):
        scales = fit_scales(blocks, round_steps(blocks, scales, zero_points, grids), scales)
    return scales, zero_points


def round_to_grid(rows: Array, scales: Array, zero_points: Array, grids: Grids) -> Encoding:
    """Round `rows` to the grids of their blocks, as `grid_of` returns them."""
    count, n = rows.shape
    numbers = round_steps(split_blocks(rows, grids.block), scales, zero_points, grids) + zero_points
    return Encoding(
        grids,
        numbers.astype(grids.dtype).reshape(count, -1)[:, :n],
        scales.reshape(count, -1),
        zero_points.astype(grids.dtype).reshape(count, -1),
    )


def _portion(rows: Array, grids: Grids) -> Encoding:
    return round_to_grid(rows, *best_grid(split_blocks(rows, grids.block), grids), grids)


def _best(blocks: Array, grids: Grids, cuts: Sequence[float] | Array) -> tuple[Array, Array]:
    reach, low = _full_range_scale(blocks, grids)
    best = reach, _zero_points(low, reach, grids)
    least = np.full((len(blocks), 1), np.inf, np.float32)
    for cut in cuts:
        scales = reach * np.float32(cut)
        zero_points = _zero_points(low * np.float32(min(cut, 1)), scales, grids)
        error = _error(blocks, scales, zero_points, grids)
        better = error < least
        best = np.where(better, scales, best[0]), np.where(better, zero_points, best[1])
        least = np.minimum(error, least)
    return best


def _full_range_scale(blocks: Array, grids: Grids) -> tuple[Array, Array]:
    """Return the scale that just reaches the largest weight, and the least weight or 0; [blocks, 1] each."""
    least = np.minimum(blocks.min(axis=1, keepdims=True), np.float32(0))
    most = np.maximum(blocks.max(axis=1, keepdims=True), np.float32(0))
    if grids.symmetric:
        # The longer half of the numbers for the longer side of the weights: the scale may be negative.
        larger = np.where(-least >= most, least, most)
        reach = larger / np.float32(grids.lowest)
    else:
        reach = (most - least) / np.float32(grids.highest)
    tiny = np.abs(reach) < np.finfo(np.float32).tiny
    return np.where(tiny, np.float32(1), reach), least


def _zero_points(low: Array, scales: Array, grids: Grids) -> Array:
    if grids.symmetric:
        return np.zeros_like(scales)
    return np.clip(np.rint(-low / scales), grids.lowest, grids.highest)


def _error(blocks: Array, scales: Array, zero_points: Array, grids: Grids) -> Array:
    rest = round_steps(blocks, scales, zero_points, grids)
    rest *= scales
    rest -= blocks
    return np.asarray(np.einsum("bn,bn->b", rest, rest)[:, None])


def round_steps(blocks: Array, scales: Array, zero_points: Array, grids: Grids) -> Array:
    """Return the nearest integers, without their zero point, float32."""
    found = blocks / scales
    np.rint(found, out=found)
    return np.clip(found, grids.lowest - zero_points, grids.highest - zero_points, out=found)


def fit_scales(blocks: Array, numbers: Array, scales: Array) -> Array:
    """Return the scales by which `numbers`, without zero point, are nearest to `blocks`; `scales` where none is."""
    squares = np.einsum("bn,bn->b", numbers, numbers)[:, None]
    products = np.einsum("bn,bn->b", numbers, blocks)[:, None]
    found = np.divide(products, squares, out=scales.copy(), where=squares > 0)
    return np.where(np.abs(found) >= np.finfo(np.float32).tiny, found, scales)
