"""If nodes of which one branch cannot run: its result has a rank that an operator behind it does not take.

PyTorch guards `squeeze` so: a branch for an axis of size 1 and one for any other, of which the layers that follow
take only one. No target has tensors whose number of dimensions is decided at run time.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from onnxport.formats.model import Model
from onnxport.optimizers.constant_branches import inline_branch

BRANCHES = ("then_branch", "else_branch")

# Op -> the rank of its first input. A convolution's is that of its weights.
_RANKS = {"GRU": 3, "LSTM": 3, "RNN": 3, "Gemm": 2}
_RANK_OF_WEIGHTS = frozenset(("Conv", "ConvTranspose"))


def drop_impossible_branches(model: Model, refresh: Callable[[Model], None]) -> int:
    """Puts the only branch that can run in place of each If that has one; returns how many went.

    Args:
        refresh: infers shapes and folds constants anew.
    """
    dropped, position = 0, 0
    while (position := _next(model, position)) >= 0:
        possible = [name for name in BRANCHES if not _fails(*_with_branch(model, position, name, refresh))]
        if len(possible) == 1:
            _take(model, position, possible[0])
            refresh(model)
            dropped, position = dropped + 1, 0
        else:
            position += 1
    return dropped


def _next(model: Model, position: int) -> int:
    """The place, `position` or later, of an If whose result may have one rank or another; -1 if none."""
    for number, node in enumerate(model.graph.all_nodes()):
        if number >= position and node.op_type == "If" and node.domain == "" and _differs(node):
            return number
    return -1


def _differs(node: ir.Node) -> bool:
    graphs = [node.attributes[name].as_graph() for name in BRANCHES]
    return any(
        then.shape is not None and other.shape is not None and len(then.shape) != len(other.shape)
        for then, other in zip(*(graph.outputs for graph in graphs), strict=True)
    )


def _with_branch(
    model: Model, position: int, branch: str, refresh: Callable[[Model], None]
) -> tuple[Model, ir.Graph]:
    """A copy in which one If is replaced by a branch of it, and the graph that it stood in."""
    copy = model.clone()
    graph = _take(copy, position, branch)
    refresh(copy)
    return copy, graph


def _take(model: Model, position: int, branch: str) -> ir.Graph:
    node = list(model.graph.all_nodes())[position]
    assert node.graph is not None
    graph: ir.Graph = node.graph
    inline_branch(model, graph, node, node.attributes[branch].as_graph())
    return graph


def _fails(model: Model, graph: ir.Graph) -> bool:
    """Whether an operator that runs whenever the graph does gets an operand that it cannot take."""
    return any(_takes_another_rank(node) for node in graph if node.domain == "")


def _takes_another_rank(node: ir.Node) -> bool:
    value = node.inputs[0] if node.inputs else None
    if value is None or value.shape is None:
        return False
    if node.op_type in _RANK_OF_WEIGHTS:
        weights = node.inputs[1]
        return weights is not None and weights.shape is not None and len(weights.shape) != len(value.shape)
    return len(value.shape) != _RANKS.get(node.op_type, len(value.shape))
