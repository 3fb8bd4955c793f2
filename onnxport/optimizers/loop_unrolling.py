"""Unrolling of loops whose state changes its shape, for targets whose loops keep shapes.

Loops with a small constant number of steps whose state starts empty or has another shape after a step are unrolled
whole. Of others that surely run, the first step is moved out: exporters start a state that only a step defines as any
number (Paddle), and it keeps its shape from then on.
"""

from __future__ import annotations

from collections.abc import Sequence

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


def peel_loops(model: Model) -> int:
    """Move the first step of a loop in front of it where a state starts with another rank; return how many loops."""
    loops = [node for node in model.graph if node.op_type == "Loop" and node.domain == ""]
    found = [node for node in loops if _runs(node) and _starts_otherwise(node)]
    for node in found:
        _peel(node, model)
    return len(found)


def _runs(node: ir.Node) -> bool:
    """Return whether a loop surely runs its first step."""
    limit, condition = node.inputs[:2]
    counts = limit is None or (limit.const_value is not None and int(limit.const_value.numpy().item()) > 0)
    return counts and (
        condition is None or (condition.const_value is not None and bool(condition.const_value.numpy().all()))
    )


def _starts_otherwise(node: ir.Node) -> bool:
    """Return whether a state has a known rank at first, and no one rank in the body (loop_shapes.py)."""
    states = node.attributes["body"].as_graph().inputs[2:]
    pairs = zip(node.inputs[2:], states, strict=True)
    return any(
        before is not None and before.shape is not None and value.shape is None for before, value in pairs
    )


def _peel(node: ir.Node, model: Model) -> None:
    body, prefix = node.attributes["body"].as_graph(), node.name or node.outputs[0].name or "loop"
    states = list(node.inputs[2:])
    condition, *results = _inline_step(model, node, f"{prefix}.first", 0, states)
    limit = node.inputs[0]
    if limit is not None:
        assert limit.const_value is not None
        left = np.asarray(limit.const_value.numpy() - 1)
        node.replace_input_with(0, _constant(node, f"{prefix}.left", left))
    node.replace_input_with(1, condition)
    for index, value in enumerate(results[: len(states)]):
        node.replace_input_with(2 + index, value)
    number = body.inputs[0]
    if number.uses():
        one = _constant(node, f"{prefix}.one", np.array(1, np.int64))
        behind = ir.node("Add", [number, one], name=f"{prefix}.number")
        behind.outputs[0].name = f"{prefix}.number"
        number.replace_all_uses_with(behind.outputs[0])
        behind.replace_input_with(0, number)
        body.insert_before(body[0], behind)
    for row, rest in zip(results[len(states) :], node.outputs[len(states) :], strict=True):
        _prepend(node, row, rest)


def _prepend(node: ir.Node, row: ir.Value, rest: ir.Value) -> None:
    """Put the row of a step in front of those that a loop collects."""
    name, rest.name = rest.name or "", f"{rest.name}.rest"
    axes = _constant(node, f"{name}.axes", np.array([0], np.int64))
    first = _insert(node, "Unsqueeze", f"{name}.first", [row, axes])
    both = ir.node("Concat", [first, rest], {"axis": 0}, name=name)
    both.outputs[0].name, both.outputs[0].type = name, rest.type
    rest.replace_all_uses_with(both.outputs[0], replace_graph_outputs=True)
    both.replace_input_with(1, rest)
    assert node.graph is not None
    node.graph.insert_after(node, both)


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
        _, *results = _inline_step(model, node, f"{prefix}.{step}", step, states)
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


def _inline_step(
    model: Model, node: ir.Node, prefix: str, step: int, states: Sequence[ir.Value | None]
) -> list[ir.Value]:
    """Write one step in front of a loop; return its condition, states and rows."""
    copy = node.attributes["body"].as_graph().clone(allow_outer_scope_values=True)
    for inner in copy.all_nodes():
        inner.name = f"{prefix}/{inner.name or inner.op_type}"
        for value in inner.outputs:
            value.shape = None  # it held for every step
    number = _constant(node, prefix, np.array(step, np.int64))
    condition = _constant(node, f"{prefix}.on", np.array(True))
    return inline_body(model, node, copy, [number, condition, *states])


def _insert(before: ir.Node, op: str, name: str, inputs: list[ir.Value], **attributes: int) -> ir.Value:
    node = ir.node(op, inputs, attributes or None, name=name)
    node.outputs[0].name = name
    assert before.graph is not None
    before.graph.insert_before(before, node)
    return node.outputs[0]


def _constant(node: ir.Node, name: str, array: np.ndarray) -> ir.Value:
    assert isinstance(node.graph, ir.Graph)
    return add_initializer(node.graph, f"{name}.constant", array)
