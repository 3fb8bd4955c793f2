"""ONNX's Constant nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxport.converters.lowering import NodeView

# Attribute of a Constant -> the type of its elements; a tensor has its own.
_TYPES = {
    "value": None,
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}


def read_constant(node: NodeView[Any]) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the elements of a Constant node (ONNX Constant-21)."""
    (name,) = node.node.attributes
    if name not in _TYPES:
        node.unsupported(f"a constant given as {name}")
    return np.asarray(node.attribute(name), _TYPES[name])
