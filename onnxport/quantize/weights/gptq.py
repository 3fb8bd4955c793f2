"""GPTQ (Frantar et al. 2022): later columns compensate the rounding error of earlier ones.

The output error of x @ W.T over all samples is the sum over rows of e @ H @ e.T, with e the row's rounding error and
H the Gram matrix of the inputs. With e fixed in the columns done so far, the rest has a closed-form best answer,
which the Cholesky factor of the inverse of H gives column by column (section 3.3 of the paper).
"""

from __future__ import annotations

import numpy as np

from onnxport.core.arrays import Array
from onnxport.quantize.weights import rtn
from onnxport.quantize.weights.encoding import Encoding, Grids

# Added to the diagonal of H, in parts of its mean: samples are few, and H may be singular (the paper's 1 %).
DAMPING = 0.01
# Columns whose updates reach the columns behind them together (the paper's lazy batches).
_BATCH = 128


def round_gptq(rows: Array, gram: Array, grids: Grids) -> Encoding:
    """Round `rows` [rows, n] float32 with the least error on inputs of the Gram matrix `gram` [n, n] float64.

    Every block's grid is chosen when its turn comes, for the weights as the columns before have left them.
    """
    factor = _factor(gram)
    left = np.array(rows.T, order="C")  # a copy in which a column of the weight lies together
    n, count = left.shape
    numbers = np.empty((n, count), grids.dtype)
    found_scales, found_zero_points = list[Array](), list[Array]()
    scales = zero_points = np.empty(0, np.float32)
    size = grids.block * max(1, _BATCH // grids.block) if grids.block < _BATCH else _BATCH
    for start in range(0, n, size):
        stop = min(n, start + size)
        errors = np.empty((stop - start, count), np.float32)
        for column in range(start, stop):
            if column % grids.block == 0:
                scales, zero_points = rtn.best_grid(left[column : column + grids.block].T.copy(), grids)
                found_scales.append(scales)
                found_zero_points.append(zero_points)
                scales, zero_points = scales[:, 0], zero_points[:, 0]
            steps = np.clip(np.rint(left[column] / scales) + zero_points, grids.lowest, grids.highest)
            numbers[column] = steps
            error = (left[column] - (steps - zero_points) * scales) / factor[column, column]
            left[column + 1 : stop] -= factor[column, column + 1 : stop, None] * error
            errors[column - start] = error
        left[stop:] -= factor[start:stop, stop:].T @ errors
    return Encoding(
        grids,
        np.ascontiguousarray(numbers.T),
        np.hstack(found_scales),
        np.hstack(found_zero_points).astype(grids.dtype),
    )


def _factor(gram: Array) -> Array:
    """Return the upper Cholesky factor of the inverse damped Gram matrix; inputs that are always 0 count alone."""
    damped = gram.astype(np.float64)
    diagonal = np.diagonal(damped).copy()
    silent = diagonal == 0
    np.fill_diagonal(damped, diagonal + DAMPING * diagonal.mean() + silent)
    inverse = np.linalg.inv(damped)
    return np.asarray(np.linalg.cholesky((inverse + inverse.T) / 2).T.astype(np.float32))
