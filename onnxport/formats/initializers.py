"""Constants that are added to a graph."""

from __future__ import annotations

import onnx_ir as ir

from onnxport.core.arrays import Array


def add_initializer(graph: ir.Graph, name: str, array: Array) -> ir.Value:
    """Store `array` in `graph` and return it; the graph must not have the name."""
    value = ir.val(name, const_value=ir.Tensor(array, name=name))
    graph.register_initializer(value)
    return value
