"""Weights below float32's normal range, which training with weight decay leaves: a processor computes step by step."""

from __future__ import annotations

import numpy as np

from onnxport.core.arrays import Array

_NORMAL = np.float32(np.finfo(np.float32).tiny)


def without_subnormals(array: Array) -> Array:
    """Return a float32 array with 0 for what is below the normal range, and any other, or one without, itself."""
    if array.dtype != np.float32:
        return array
    tiny = (np.abs(array) < _NORMAL) & (array != 0)
    return np.where(tiny, np.float32(0), array) if tiny.any() else array
