"""One rank for a result of one element that the branches of an If give with two, which targets do not hold.

Exporters write a flag as a number in one branch and as a vector of one in the other (Paddle). What reads it broadcasts
it against a vector or reshapes it, so that nothing behind tells the two apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxport.formats.initializers import add_initializer
from onnxport.formats.model import Model
from onnxport.optimizers.branches import BRANCHES
from onnxport.optimizers.patterns import known_dims
from onnxport.optimizers.shape_inference import infer_first_steps

_UNARY = frozenset("Abs Cast Identity Neg Not Sign".split())
_BINARY = frozenset(
    "Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mod Mul Or Sub Xor".split()
)


@dataclass(frozen=True)
class _Lift:
    """A branch of the If at a position of the model's nodes, whose result lacks some dimensions of size 1."""

    position: int
    branch: str
    index: int
    rank: int


def equalize_ranks(model: Model, refresh: Callable[[Model], None]) -> int:
    """Give such results the rank of the other branch; return how many.

    In a loop's body a state has the rank that it starts with only if the body keeps it: a copy of the model tells.

    Args:
        refresh: infers shapes and folds constants anew.
    """
    if not any(node.op_type == "If" and not node.domain for node in model.graph.all_nodes()):
        return 0
    trial = model.clone()
    infer_first_steps(trial)
    lifts = [lift for position, node in enumerate(trial.graph.all_nodes()) for lift in _lifts(node, position)]
    if not lifts:
        return 0
    _apply(trial, lifts)
    refresh(trial)
    if not _states_keep_their_ranks(trial):
        return 0
    _apply(model, lifts)
    refresh(model)
    return len(lifts)


def _lifts(node: ir.Node, position: int) -> list[_Lift]:
    if node.op_type != "If" or node.domain != "":
        return []
    found = []
    for index, result in enumerate(node.outputs):
        ranks = {}
        for name in BRANCHES:
            dims = known_dims(node.attributes[name].as_graph().outputs[index])
            if dims is not None and all(dim == 1 for dim in dims):
                ranks[name] = len(dims)
        if len(ranks) < len(BRANCHES) or len(set(ranks.values())) == 1:
            continue
        most = max(ranks.values())
        if _hides_rank(result, most):
            found += [_Lift(position, name, index, most) for name in BRANCHES if ranks[name] < most]
    return found


def _hides_rank(value: ir.Value, most: int) -> bool:
    """Return whether nothing tells apart if a value of one element has `most` or fewer dimensions."""
    return not value.is_graph_output() and all(
        _reader_hides_rank(node, index, value, most) for node, index in value.uses()
    )


def _reader_hides_rank(node: ir.Node, index: int, value: ir.Value, most: int) -> bool:
    if node.domain != "":
        return False
    if node.op_type in _BINARY:
        others = [known_dims(each) for each in node.inputs if each is not value]
        if any(dims is not None and len(dims) >= most for dims in others):
            return True
    if node.op_type in _UNARY | _BINARY:
        return _hides_rank(node.outputs[0], most)
    if node.op_type == "Reshape":
        target = node.inputs[1]
        return (
            index == 0
            and target is not None
            and target.const_value is not None
            and (0 not in target.const_value.numpy())
        )
    return (node.op_type == "If" and index == 0) or (node.op_type == "Loop" and index in (0, 1))


def _apply(model: Model, lifts: list[_Lift]) -> None:
    nodes = list(model.graph.all_nodes())
    for number, lift in enumerate(lifts):
        branch = nodes[lift.position].attributes[lift.branch].as_graph()
        value = branch.outputs[lift.index]
        name = f"{value.name}.ranked.{number}"
        ones = add_initializer(branch, f"{name}.shape", np.ones(lift.rank, np.int64))
        node = ir.node("Reshape", [value, ones], name=name)
        node.outputs[0].name, node.outputs[0].type = name, value.type
        branch.append(node)
        branch.outputs[lift.index] = node.outputs[0]


def _states_keep_their_ranks(model: Model) -> bool:
    """Return whether the states of all loops have one rank."""
    bodies = [
        node.attributes["body"].as_graph()
        for node in model.graph.all_nodes()
        if node.op_type == "Loop" and not node.domain
    ]
    return all(value.shape is not None for body in bodies for value in body.inputs[2:])
