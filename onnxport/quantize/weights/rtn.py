"""Round to nearest, on the grid that leaves the least squared error.

The scale that just reaches the largest weight of a block rounds all others coarsely; one that cuts it off is nearer to
most. Some are tried, and the best is refined: the numbers that a scale gives have a scale that is the least-squares fit
to them, which gives other numbers, and so on (as in Lloyd 1982).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxport.quantize.weights.encoding import Array, Encoding, Grids, blocked, joined, portions

# Parts of the scale that reaches the largest weight. Above 1: a signed grid has one number more below zero than above.
_CUTS = {4: np.linspace(1.15, 0.6, 12, dtype=np.float32), 8: np.linspace(1.0, 0.6, 9, dtype=np.float32)}
_REFINEMENTS = 3


def nearest(rows: Array, grids: Grids) -> Encoding:
    """The numbers nearest to `rows` [rows, n] float32 on the best grid for each block."""
    return joined(grids, [_portion(rows[part], grids) for part in portions(rows)])


def chosen(rows: Array, bits: int, block: int) -> Encoding:
    """On symmetric grids, or with zero points where those leave much less error: they cost half a byte a block."""
    symmetric = nearest(rows, Grids(bits, block, symmetric=True))
    if bits == 8:
        return symmetric
    shifted = nearest(rows, Grids(bits, block, symmetric=False))
    return shifted if shifted.error(rows) < _WORTH * symmetric.error(rows) else symmetric


# The error with zero points, in parts of the error without, from which on they are worth their place.
_WORTH = 0.95


def grid_of(blocks: Array, grids: Grids) -> tuple[Array, Array]:
    """Scale and zero point of each of `blocks` [blocks, n] float32; float32 both, [blocks, 1]."""
    scales, zero_points = _best(blocks, grids, _CUTS[grids.bits])
    for _ in range(_REFINEMENTS):
        scales = _refined(blocks, scales, zero_points, grids)
    return scales, zero_points


def _portion(rows: Array, grids: Grids) -> Encoding:
    count, n = rows.shape
    blocks = blocked(rows, grids.block)
    scales, zero_points = grid_of(blocks, grids)
    numbers = np.clip(np.rint(blocks / scales) + zero_points, grids.lowest, grids.highest)
    return Encoding(
        grids,
        numbers.astype(grids.dtype).reshape(count, -1)[:, :n],
        scales.reshape(count, -1),
        zero_points.astype(grids.dtype).reshape(count, -1),
    )


def _best(blocks: Array, grids: Grids, cuts: Sequence[float] | Array) -> tuple[Array, Array]:
    reach, low = _reach(blocks, grids)
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


def _reach(blocks: Array, grids: Grids) -> tuple[Array, Array]:
    """The scale with which the numbers just reach the largest weight, and the least weight or 0; [blocks, 1] each."""
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
    rest = _steps(blocks, scales, zero_points, grids)
    rest *= scales
    rest -= blocks
    return np.asarray(np.einsum("bn,bn->b", rest, rest)[:, None])


def _steps(blocks: Array, scales: Array, zero_points: Array, grids: Grids) -> Array:
    """The numbers without their zero point."""
    steps = blocks / scales
    np.rint(steps, out=steps)
    return np.clip(steps, grids.lowest - zero_points, grids.highest - zero_points, out=steps)


def _refined(blocks: Array, scales: Array, zero_points: Array, grids: Grids) -> Array:
    """The scales that fit best to the numbers that `scales` give; a block of zeros keeps its own."""
    steps = _steps(blocks, scales, zero_points, grids)
    squares = np.einsum("bn,bn->b", steps, steps)[:, None]
    products = np.einsum("bn,bn->b", steps, blocks)[:, None]
    fitted = np.divide(products, squares, out=scales.copy(), where=squares > 0)
    usable = np.abs(fitted) >= np.finfo(np.float32).tiny
    return np.where(usable, fitted, scales)
