"""Inputs that no output depends on."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.formats.model import Model


def unread_inputs(model: Model) -> tuple[str, ...]:
    """Return the names of the inputs that no output depends on, in the model's order."""
    copy = model.clone()
    return tuple(value.name or "" for value in _find_unread(copy))


def prune_inputs(model: Model) -> tuple[str, ...]:
    """Remove inputs that no output depends on, and unused nodes, in place; return the inputs' names."""
    unread = _find_unread(model)
    for value in unread:
        model.graph.inputs.remove(value)
    return tuple(value.name or "" for value in unread)


def _find_unread(model: Model) -> list[ir.Value]:
    """Remove unused nodes and return the inputs without readers, except initializers that IR 3 lists as inputs."""
    common.RemoveUnusedNodesPass()(model.ir)
    return [
        value
        for value in model.graph.inputs
        if value.name not in model.graph.initializers and not value.uses() and not value.is_graph_output()
    ]
