"""From one type to another."""

from __future__ import annotations

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.registry import Call, kernel

_TYPES = {"fp16": "float16", "fp32": "float32"}


@kernel("cast")
def cast(x: Array, dtype: str, call: Call) -> Array:
    """Floats lose their fraction on the way to integers; the documentation knows no result for what does not fit."""
    wanted = np.dtype(_TYPES.get(dtype, dtype))
    if call.strict and wanted.kind in "iu" and x.size and x.dtype.kind in "fiu":
        limits = np.iinfo(wanted)
        # In float64, which holds the limits of 32 bits as they are; a fraction is cut off before it counts.
        lowest, highest = float(x.min()), float(x.max())
        if not (lowest > limits.min - 1 and highest < limits.max + 1):
            call.undefined(f"values from {lowest} to {highest} do not fit into {wanted.name}")
    return x.astype(wanted)
