"""float32 numbers as float16 constants."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array

LARGEST = float(np.finfo(np.float16).max)
LEAST = float(np.finfo(np.float16).smallest_normal)
LARGEST_INTEGER = 2048.0  # up to here float16 is exact for integers
_AT_A_TIME = 2**20  # numbers: a large weight is not finite in several copies
# Tensors of more bytes are rounded when they are written, one at a time.
_AT_ONCE = 2**20


def half_tensor(tensor: ir.TensorProtocol, name: str) -> ir.TensorProtocol:
    """Return a float32 tensor rounded to float16 by `to_half`."""
    if tensor.nbytes <= _AT_ONCE:
        return ir.tensor(to_half(tensor.numpy()), name=name)
    shape = tensor.shape
    assert isinstance(shape, ir.Shape)
    return ir.LazyTensor(
        lambda: ir.tensor(to_half(tensor.numpy()), name=name),
        dtype=ir.DataType.FLOAT16,
        shape=shape,
        name=name,
    )


def beyond_range(tensor: ir.TensorProtocol) -> float:
    """Return the finite element farthest beyond float16's range; 0 if there is none."""
    most, values = 0.0, tensor.numpy().reshape(-1)
    for start in range(0, values.size, _AT_A_TIME):
        part = values[start : start + _AT_A_TIME]
        finite = part[np.isfinite(part)]
        farthest = float(finite[np.argmax(np.abs(finite))]) if finite.size else 0.0
        if abs(farthest) > max(LARGEST, abs(most)):
            most = farthest
    return most


def to_half(values: Array) -> Array:
    """Round to float16: finite numbers stay finite, and a single nonzero number does not become 0.

    A mask's -3.4e38 as -inf would give NaN behind Softmax, and an epsilon of 0 a division by 0.
    validate/rounded_reference.py rounds alike.
    """
    if values.size == 1:
        finite = _finite(values)
        lifted = np.where((finite != 0) & (np.abs(finite) < LEAST), np.copysign(LEAST, finite), finite)
        return np.asarray(lifted.astype(np.float16))
    halves = np.empty(values.shape, np.float16)
    rows = max(1, _AT_A_TIME * len(values) // max(values.size, 1))
    for start in range(0, len(values), rows):
        halves[start : start + rows] = _finite(values[start : start + rows])
    return halves


def _finite(values: Array) -> Array:
    return np.where(np.isfinite(values), np.clip(values, -LARGEST, LARGEST), values)
