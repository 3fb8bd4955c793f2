"""The Gram matrix of a product's inputs for GPTQ: the sum of x.T @ x over all samples, without rounding."""

from __future__ import annotations

import numpy as np

from onnxport.core.arrays import Array
from onnxport.quantize.calibration.observers import NotFiniteError

# A sample's sums are held as integers of two words, the upper one in units of 2^-20 and the lower in 2^-70, so that
# adding them up neither rounds nor depends on an order; the lower word has room for 2^13 samples.
_UPPER, _LOWER = 20, 50
# Rows of one sample beyond this are thinned out: neighbours in a long sequence or a large picture say much the same.
ROWS = 1024


class GramMatrix:
    """An observer of the Gram matrix of rows of length n: float64 [n, n].

    Attributes:
        axis: along which a row lies.
        rows: how many were counted.
    """

    def __init__(self, axis: int = -1) -> None:
        self.axis, self.rows = axis, 0
        self._upper = self._lower = np.zeros((0, 0), np.int64)

    def observe(self, values: Array, sample: int) -> None:
        """See Observer."""
        if not values.size:
            return
        rows = np.moveaxis(values, self.axis, -1).reshape(-1, values.shape[self.axis])
        rows = rows[:: -(-len(rows) // ROWS)].astype(np.float32)
        product = (rows.T @ rows).astype(np.float64)
        if not np.isfinite(product).all():
            raise NotFiniteError("NaN or infinity, or a sum of squares that float32 does not hold")
        scaled = np.ldexp(product, _UPPER)
        upper = np.floor(scaled)
        lower = np.floor(np.ldexp(scaled - upper, _LOWER))
        self._add(upper.astype(np.int64), lower.astype(np.int64), len(rows))

    def merge(self, other: GramMatrix) -> None:
        """See Observer."""
        if other.rows:
            self._add(other._upper, other._lower, other.rows)

    def matrix(self) -> Array:
        """float64[n, n]."""
        return np.asarray(np.ldexp(self._upper + np.ldexp(self._lower.astype(np.float64), -_LOWER), -_UPPER))

    def _add(self, upper: Array, lower: Array, rows: int) -> None:
        self._upper, self._lower = (
            (upper, lower) if not self.rows else (self._upper + upper, self._lower + lower)
        )
        self.rows += rows
