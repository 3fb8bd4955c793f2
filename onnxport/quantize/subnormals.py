"""Weights below float32's normal range, which training with weight decay leaves: 0 in their place.

A processor computes with such numbers step by step. One face network (112 x 112, 9 of 1000 weights) ran in 18 ms where
they were 0, and in 67 ms where they were not.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.quantize.placement.operators import PRODUCTS

_NORMAL = np.float32(np.finfo(np.float32).tiny)


def flush_subnormals(graph: ir.Graph) -> bool:
    """Flush the constant float32 weights of products; return whether there were any."""
    weights = {node.inputs[1] for node in graph if node.op_type in PRODUCTS and len(node.inputs) > 1}
    changed = False
    for value in weights:
        if value is None or value.const_value is None or value.dtype != ir.DataType.FLOAT:
            continue
        array = value.const_value.numpy()
        flushed = without_subnormals(array)
        if flushed is not array:
            value.const_value = ir.tensor(flushed, name=value.name)
            changed = True
    return changed


def without_subnormals(array: Array) -> Array:
    """Return a float32 array with 0 for what is below the normal range, and any other, or one without, itself."""
    if array.dtype != np.float32:
        return array
    tiny = (np.abs(array) < _NORMAL) & (array != 0)
    return np.where(tiny, np.float32(0), array) if tiny.any() else array
