"""QuantizeLinear and DequantizeLinear of constants, the same for every target."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxport.core.arrays import Array

# Quantized integer type -> its limits; NumPy knows those of its own types only.
LIMITS = {
    "int2": (-2, 1),
    "uint2": (0, 3),
    "int4": (-8, 7),
    "uint4": (0, 15),
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
}


def quantize(x: Array, scale: Array, zero_point: Array | None, dtype: np.dtype[Any]) -> Array:
    """Return saturate(round(x / scale) + zero point), ties to even; the parameters broadcast with x."""
    steps = np.round(x.astype(np.float32) / scale)
    if zero_point is not None:
        steps = steps + zero_point.astype(np.float32)
    limits = LIMITS.get(dtype.name) or (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return np.asarray(np.clip(steps, *limits).astype(np.int32).astype(dtype))


def dequantize(x: Array, scale: Array, zero_point: Array | None, dtype: np.dtype[Any]) -> Array:
    """Return (x - zero point) * scale; the parameters broadcast with x."""
    if x.dtype.kind in "iu" or x.dtype.name in LIMITS:
        wide = x.astype(np.int64)
        steps = (wide if zero_point is None else wide - zero_point.astype(np.int64)).astype(np.float32)
    else:
        steps = x.astype(np.float32)
    return np.asarray((steps * scale.astype(np.float32)).astype(dtype))
