"""Operands of Concat that have no elements, as `boxes[:, 4:]` of four columns in exported detectors."""

from __future__ import annotations

import onnx_ir as ir

from onnxport.formats.model import Model
from onnxport.optimizers.patterns import known_dims


def drop_empty_operands(node: ir.Node) -> bool:
    """Leave those operands of a Concat out that add nothing along its axis; return whether there were any."""
    axis = node.attributes.get_int("axis")
    kept = [value for value in node.inputs if axis is None or not _is_empty(value, axis)]
    kept = kept or [node.inputs[0]]
    if len(kept) == len(node.inputs):
        return False
    node.resize_inputs(len(kept))
    for index, value in enumerate(kept):
        node.replace_input_with(index, value)
    return True


def _is_empty(value: ir.Value | None, axis: int) -> bool:
    dims = known_dims(value) or ()
    return -len(dims) <= axis < len(dims) and dims[axis] == 0


def drop_all_empty_operands(model: Model) -> bool:
    """Do so in all graphs of a model."""
    joins = [node for node in model.graph.all_nodes() if node.op_type == "Concat" and not node.domain]
    return sum(map(drop_empty_operands, joins)) > 0
