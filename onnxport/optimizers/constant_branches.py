"""If nodes whose condition is known: the branch that will be taken, put in the node's place.

Exporters guard shape checks by If; once shapes are known so are the conditions, and what is left is a plain graph.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnxport.formats.model import Model


def inline_known_branches(model: Model) -> int:
    """Replaces each If with a constant condition by its branch, from the outside in; returns how many went."""
    for graph in model.ir.graphs():
        known = [node for node in graph if _condition(node) is not None]
        for node in known:
            branch = node.attributes["then_branch" if _condition(node) else "else_branch"].as_graph()
            inline_branch(model, graph, node, branch)
        if known:
            return len(known)  # what was inside stands elsewhere now
    return 0


def _condition(node: ir.Node) -> bool | None:
    if node.op_type != "If" or node.domain != "" or node.inputs[0] is None:
        return None
    tensor = node.inputs[0].const_value
    return None if tensor is None else bool(tensor.numpy().item())


def inline_branch(model: Model, graph: ir.Graph, node: ir.Node, branch: ir.Graph) -> None:
    """Puts the nodes of a branch of an If of `graph` in its place."""
    for old, new in zip(node.outputs, moved_out(model, graph, node, branch), strict=True):
        # An Identity keeps the name of what may be an output; `prepare` takes the others out.
        name, old.name = old.name, None
        copy = ir.node("Identity", [new])
        copy.outputs[0].name, copy.outputs[0].shape, copy.outputs[0].type = name, new.shape, new.type
        graph.insert_before(node, copy)
        old.replace_all_uses_with(copy.outputs[0], replace_graph_outputs=True)
    graph.remove(node, safe=True)


def moved_out(model: Model, graph: ir.Graph, node: ir.Node, body: ir.Graph) -> list[ir.Value]:
    """Moves what a subgraph computes in front of the node that it belongs to; returns the subgraph's results."""
    taken = _names_outside(body, model)
    results = list(body.outputs)
    body.outputs.clear()
    for value in list(body.initializers.values()):
        del body.initializers[value.name or ""]
        _rename(value, taken)
        graph.register_initializer(value)
    moved = list(body)
    body.remove(moved)
    for value in (value for each in moved for value in each.outputs):
        _rename(value, taken)
    graph.insert_before(node, moved)
    return results


def applied(
    model: Model, node: ir.Node, body: ir.Graph, operands: Sequence[ir.Value | None]
) -> list[ir.Value]:
    """The results of a body on these operands, its nodes moved in front of `node`."""
    given = dict(zip(body.inputs, operands, strict=True))
    results = [given.get(value) or value for value in body.outputs]
    body.outputs.clear()
    for parameter, operand in given.items():
        if operand is not None:
            parameter.replace_all_uses_with(operand)
    assert isinstance(node.graph, ir.Graph)
    moved_out(model, node.graph, node, body)
    return results


def _names_outside(branch: ir.Graph, model: Model) -> set[str]:
    """The names of all values in the model, but for those of this branch."""
    own = {value for node in branch.all_nodes() for value in node.outputs} | {*branch.initializers.values()}
    values = [value for graph in model.ir.graphs() for value in (*graph.inputs, *graph.initializers.values())]
    values += [value for node in model.graph.all_nodes() for value in node.outputs]
    values = [value for value in values if value not in own]
    return {value.name for value in values if value.name}


def _rename(value: ir.Value, taken: set[str]) -> None:
    """Two branches may use one name for different values, one graph may not."""
    base, number = value.name or "branch", 0
    while not value.name or value.name in taken:
        number += 1
        value.name = f"{base}.{number}"
    taken.add(value.name)
