"""One number in, one number out."""

from __future__ import annotations

import numpy as np

from onnxport.validate.runtimes.mil.registry import Array, kernel

_TYPES = {"fp16": "float16", "fp32": "float32"}


@kernel("identity")
def identity(x: Array) -> Array:
    return x


@kernel("relu")
def relu(x: Array) -> Array:
    return np.maximum(x, 0)


@kernel("sigmoid")
def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


@kernel("cast")
def cast(x: Array, dtype: str) -> Array:
    return x.astype(_TYPES.get(dtype, dtype))
