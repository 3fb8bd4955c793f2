"""Constants of products, read and replaced."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.initializers import add_initializer
from onnxport.quantize.grids import Floats


def array_of(value: ir.Value | None) -> Floats:
    """Return the numbers of a stored constant."""
    assert value is not None
    assert value.const_value is not None
    return value.const_value.numpy()


def replace_constant(graph: ir.Graph, node: ir.Node, index: int, array: Array) -> None:
    """Give a node a constant of its own, and remove an unused old one."""
    old = node.inputs[index]
    assert old is not None
    name = f"{node.name}.{'weight' if index == 1 else 'bias'}.by_channel"
    while name in graph.initializers:
        name += "_"
    node.replace_input_with(index, add_initializer(graph, name, np.ascontiguousarray(array, np.float32)))
    if not old.uses() and not old.is_graph_input():
        del graph.initializers[old.name or ""]
