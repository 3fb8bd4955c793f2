"""If nodes replaced by one of their branches, and subgraphs moved into the graph around them.

Exporters guard shape checks by If: once shapes are known, so is the condition. PyTorch guards `squeeze` by a branch for
an axis of size 1 and one for any other; the layers behind it accept only one of the two ranks. A branch whose nodes
refuse the ranks that they get never runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from onnxport.formats.model import Model

BRANCHES = ("then_branch", "else_branch")

# Op -> the rank of its first input. A convolution's is that of its weights.
_RANKS = {"GRU": 3, "LSTM": 3, "RNN": 3, "Gemm": 2}
_RANK_OF_WEIGHTS = frozenset(("Conv", "ConvTranspose"))


def inline_known_branches(model: Model) -> int:
    """Replace each If with a constant condition by its branch, outermost first; return how many."""
    for graph in model.ir.graphs():
        known = [node for node in graph if _condition(node) is not None]
        for node in known:
            branch = node.attributes["then_branch" if _condition(node) else "else_branch"].as_graph()
            inline_branch(model, graph, node, branch)
        if known:
            return len(known)  # graphs inside have moved
    return 0


def _condition(node: ir.Node) -> bool | None:
    if node.op_type != "If" or node.domain != "" or node.inputs[0] is None:
        return None
    tensor = node.inputs[0].const_value
    return None if tensor is None else bool(tensor.numpy().item())


def inline_branch(model: Model, graph: ir.Graph, node: ir.Node, branch: ir.Graph) -> None:
    """Replace an If of `graph` by the nodes of one of its branches."""
    for old, new in zip(node.outputs, move_out(model, graph, node, branch), strict=True):
        # An Identity keeps the name of a possible output; `prepare` removes the others.
        name, old.name = old.name, None
        copy = ir.node("Identity", [new])
        copy.outputs[0].name, copy.outputs[0].shape, copy.outputs[0].type = name, new.shape, new.type
        graph.insert_before(node, copy)
        old.replace_all_uses_with(copy.outputs[0], replace_graph_outputs=True)
    graph.remove(node, safe=True)


def drop_impossible_branches(model: Model, refresh: Callable[[Model], None]) -> int:
    """Replace each If by the only branch that can run, where there is one; return how many.

    `refresh` infers shapes and folds constants anew.
    """
    dropped, position, nodes = 0, 0, list(model.graph.all_nodes())
    while position < len(nodes):
        possible = _branches_that_run(nodes[position])
        for name in possible[:] if len(possible) > 1 and _has_two_ranks(nodes[position]) else ():
            copy = model.clone()
            graph = _take(copy, position, name)
            refresh(copy)
            # A node that runs whenever the graph does gets an operand of a rank that it refuses.
            if any(map(_refuses_rank, graph)):
                possible.remove(name)
        if len(possible) == 1:
            _take(model, position, possible[0])
            refresh(model)
            dropped, position, nodes = dropped + 1, 0, list(model.graph.all_nodes())
        else:
            position += 1
    return dropped


def _branches_that_run(node: ir.Node) -> list[str]:
    """Return the branches of an If whose nodes take the ranks that they get; () for other nodes.

    silero-vad has a branch for 256 samples, and one for 512: of --shape input=1,576 one cannot run.
    """
    if node.op_type != "If" or node.domain != "":
        return []
    return [name for name in BRANCHES if not any(map(_refuses_rank, node.attributes[name].as_graph()))]


def _has_two_ranks(node: ir.Node) -> bool:
    """Return whether the result of an If has one of two ranks."""
    results = (node.attributes[name].as_graph().outputs for name in BRANCHES)
    return any(
        then.shape is not None and other.shape is not None and len(then.shape) != len(other.shape)
        for then, other in zip(*results, strict=True)
    )


def _take(model: Model, position: int, branch: str) -> ir.Graph:
    node = list(model.graph.all_nodes())[position]
    assert node.graph is not None
    graph: ir.Graph = node.graph
    inline_branch(model, graph, node, node.attributes[branch].as_graph())
    return graph


def _refuses_rank(node: ir.Node) -> bool:
    value = node.inputs[0] if node.inputs and node.domain == "" else None
    if value is None or value.shape is None:
        return False
    if node.op_type in _RANK_OF_WEIGHTS:
        weights = node.inputs[1]
        return weights is not None and weights.shape is not None and len(weights.shape) != len(value.shape)
    if node.op_type == "Gather":
        return _picks_beyond(node, value)
    return len(value.shape) != _RANKS.get(node.op_type, len(value.shape))


def _picks_beyond(node: ir.Node, data: ir.Value) -> bool:
    """Return whether a Gather picks what is not there: of a shape, a dimension that a value lacks."""
    picked, axis = node.inputs[1], node.attributes.get_int("axis", 0)
    if picked is None or picked.const_value is None or data.shape is None:
        return False
    size = data.shape[axis] if -len(data.shape) <= axis < len(data.shape) else None
    return isinstance(size, int) and any(
        not -size <= index < size for index in picked.const_value.numpy().ravel()
    )


def move_out(model: Model, graph: ir.Graph, node: ir.Node, body: ir.Graph) -> list[ir.Value]:
    """Move the nodes of a subgraph in front of the node that owns it; return the subgraph's results."""
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


def inline_body(
    model: Model, node: ir.Node, body: ir.Graph, operands: Sequence[ir.Value | None]
) -> list[ir.Value]:
    """Move the nodes of a body, applied to these operands, in front of `node`; return their results."""
    given = dict(zip(body.inputs, operands, strict=True))
    results = [given.get(value) or value for value in body.outputs]
    body.outputs.clear()
    for parameter, operand in given.items():
        if operand is not None:
            parameter.replace_all_uses_with(operand)
    assert isinstance(node.graph, ir.Graph)
    move_out(model, node.graph, node, body)
    return results


def _names_outside(branch: ir.Graph, model: Model) -> set[str]:
    """Return the names of all values of the model except this branch's."""
    own = {value for node in branch.all_nodes() for value in node.outputs} | {*branch.initializers.values()}
    values = [value for graph in model.ir.graphs() for value in (*graph.inputs, *graph.initializers.values())]
    values += [value for node in model.graph.all_nodes() for value in node.outputs]
    values = [value for value in values if value not in own]
    return {value.name for value in values if value.name}


def _rename(value: ir.Value, taken: set[str]) -> None:
    """Give the value a free name: two branches may use one name for different values, one graph may not."""
    base, number = value.name or "branch", 0
    while not value.name or value.name in taken:
        number += 1
        value.name = f"{base}.{number}"
    taken.add(value.name)
