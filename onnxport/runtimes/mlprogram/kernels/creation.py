"""Tensors from a shape or a few numbers."""

from __future__ import annotations

import math

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.registry import Call, kernel


@kernel("fill")
def fill(shape: Array, value: Array | float = 0.0) -> Array:
    return np.full([int(size) for size in shape.reshape(-1)], value)


@kernel("fill_like")
def fill_like(ref_tensor: Array, value: Array | float = 0.0) -> Array:
    return np.full(ref_tensor.shape, value)


@kernel("shape")
def shape(x: Array) -> Array:
    return np.array(x.shape, np.int32)


@kernel("range_1d")
def range_1d(start: Array, end: Array, step: Array, call: Call) -> Array:
    first, last, by = (each.reshape(()) for each in (start, end, step))
    if not by:
        call.undefined("a range in steps of zero")
    whole = first.dtype.kind != "f"
    span = (int(last) - int(first)) / (int(by) or 1) if whole else float((last - first) / by)
    count = np.arange(max(0, math.ceil(span)))
    return np.asarray(first + count.astype(first.dtype) * by)
