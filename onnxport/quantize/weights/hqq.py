"""Half-quadratic quantization (Badri and Shaji 2023): grids robust to outliers.

The error counts by its 0.7th power, so that a few weights may be far off. It is split in a sparse part, by a
generalized soft threshold, and the rest, for which the best zero point is a mean and the best scale a least-squares
fit. The article moves the zero point alone, which is no integer then; operators hold integers.
"""

from __future__ import annotations

import numpy as np

from onnxport.core.arrays import Array
from onnxport.quantize.weights import rtn
from onnxport.quantize.weights.encoding import Encoding, Grids, concatenate, row_slices, split_blocks

_NORM = 0.7
_ITERATIONS = 20
# Weight of the quadratic part against a block's mean error, and its growth (the article's kappa).
_BETA, _GROWTH = 10.0, 1.01


def round_hqq(rows: Array, grids: Grids) -> Encoding:
    """Round `rows` [rows, n] float32 on the grids with the least sum of |error|^0.7."""
    return concatenate(grids, [_portion(rows[part], grids) for part in row_slices(rows)])


def _portion(rows: Array, grids: Grids) -> Encoding:
    blocks = split_blocks(rows, grids.block)
    scales, zero_points = rtn.best_grid(blocks, grids)
    best = scales, zero_points
    least = np.full(scales.shape, np.inf, np.float32)
    beta = _BETA
    for _ in range(_ITERATIONS):
        steps = rtn.round_steps(blocks, scales, zero_points, grids)
        errors = blocks - steps * scales
        sizes = np.abs(errors)
        power = (sizes**_NORM).sum(axis=1, keepdims=True)
        better = power < least
        best = np.where(better, scales, best[0]), np.where(better, zero_points, best[1])
        least = np.minimum(power, least)
        dense = blocks - _shrink(errors, sizes, beta)
        scales, zero_points = _fit_scales(dense, steps, scales, zero_points, grids)
        beta *= _GROWTH
    return rtn.round_to_grid(rows, *best, grids)


def _shrink(errors: Array, sizes: Array, beta: float) -> Array:
    """Return the sparse part of the errors: what exceeds a threshold that falls as an error grows."""
    typical = sizes.mean(axis=1, keepdims=True) + np.finfo(np.float32).tiny
    relative = sizes / typical
    kept = np.maximum(relative - (relative + np.float32(1e-4)) ** (_NORM - 1) / beta, 0)
    return np.asarray(np.sign(errors) * kept * typical)


def _fit_scales(
    dense: Array, steps: Array, scales: Array, zero_points: Array, grids: Grids
) -> tuple[Array, Array]:
    """Fit the scales, then the zero points, to `dense` for the given integers."""
    scales = rtn.fit_scales(dense, steps, scales)
    if grids.symmetric:
        return scales, zero_points
    shift = np.rint((steps - dense / scales).mean(axis=1, keepdims=True))
    return scales, np.clip(zero_points + shift, grids.lowest, grids.highest)
