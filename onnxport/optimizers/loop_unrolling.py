"""Unrolling of loops whose state changes its shape, for targets whose loops keep shapes.

Only loops with a small constant number of steps whose state starts empty or has another shape after a step.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.formats.initializers import add_initializer
from onnxport.formats.model import Model, dims_of
from onnxport.optimizers.branches import inline_body

# Limits on steps, and on nodes in all steps together.
_MOST_STEPS = 128
_MOST_NODES = 4096


def unroll_changing_loops(model: Model) -> int:
    """Unroll the loops of the main graph whose states change their shapes; return how many."""
    loops = [node for node in model.graph if node.op_type == "Loop" and node.domain == ""]
    found = [(node, count) for node in loops if (count := _step_count(node)) and _changes_shape(node)]
    for node, count in found:
        _unroll(model, node, count)
    return len(found)


def _step_count(node: ir.Node) -> int:
    """Return the number of steps of a loop if it is constant and small, else 0."""
    limit, condition = node.inputs[0], node.inputs[1]
    body = node.attributes["body"].as_graph()
    if limit is None or limit.const_value is None:
        return 0
    if condition is not None and (condition.const_value is None or not condition.const_value.numpy().all()):
        return 0
    condition_out = body.outputs[0]
    while (producer := condition_out.producer()) is not None and producer.op_type == "Identity":
        assert producer.inputs[0] is not None
        condition_out = producer.inputs[0]
    known = condition_out.const_value is not None and condition_out.const_value.numpy().all()
    count = int(limit.const_value.numpy().item())
    few = 0 < count <= _MOST_STEPS and count * sum(1 for _ in body.all_nodes()) <= _MOST_NODES
    return count if few and (known or condition_out is body.inputs[1]) else 0


def _changes_shape(node: ir.Node) -> bool:
    body = node.attributes["body"].as_graph()
    for before, value, after in zip(node.inputs[2:], body.inputs[2:], body.outputs[1:], strict=False):
        if before is None or before.shape is None or value.shape is None or after.shape is None:
            return True
        if 0 in dims_of(before) or len(before.shape) != len(after.shape):
            return True
        pairs = zip(dims_of(before), dims_of(value), strict=True)
        if any(isinstance(first, int) and first != then for first, then in pairs):
            return True  # loop_shapes.py found that it changes
    return False


def _unroll(model: Model, node: ir.Node, count: int) -> None:
    body = node.attributes["body"].as_graph()
    states: list[ir.Value | None] = list(node.inputs[2:])
    rows: list[list[ir.Value]] = [[] for _ in body.outputs[1 + len(states) :]]
    prefix = node.name or node.outputs[0].name or "loop"
    for step in range(count):
        copy = body.clone(allow_outer_scope_values=True)
        for inner in copy.all_nodes():
            inner.name = f"{prefix}.{step}/{inner.name or inner.op_type}"
            for value in inner.outputs:
                value.shape = None  # it held for every step
        number = _constant(node, f"{prefix}.{step}", np.array(step, np.int64))
        condition = _constant(node, f"{prefix}.{step}.on", np.array(True))
        _, *results = inline_body(model, node, copy, [number, condition, *states])
        states = list(results[: len(states)])
        for row, value in zip(rows, results[len(states) :], strict=True):
            row.append(value)
    stacks: list[ir.Value | None] = []
    for place, row in enumerate(rows):
        name = f"{prefix}.rows.{place}"
        axes = _constant(node, f"{name}.axes", np.array([0], np.int64))
        parts = [_insert(node, "Unsqueeze", f"{name}.{i}", [value, axes]) for i, value in enumerate(row)]
        stacks.append(_insert(node, "Concat", f"{name}.all", parts, axis=0))
    for old, new in zip(node.outputs, [*states, *stacks], strict=True):
        name, old.name = old.name or "", None  # it may be a graph output's
        assert new is not None
        result = _insert(node, "Identity", name, [new])
        result.shape, result.type = new.shape, new.type
        old.replace_all_uses_with(result, replace_graph_outputs=True)
    assert isinstance(node.graph, ir.Graph)
    node.graph.remove(node, safe=True)


def _insert(before: ir.Node, op: str, name: str, inputs: list[ir.Value], **attributes: int) -> ir.Value:
    node = ir.node(op, inputs, attributes or None, name=name)
    node.outputs[0].name = name
    assert before.graph is not None
    before.graph.insert_before(before, node)
    return node.outputs[0]


def _constant(node: ir.Node, name: str, array: np.ndarray) -> ir.Value:
    assert isinstance(node.graph, ir.Graph)
    return add_initializer(node.graph, f"{name}.constant", array)
