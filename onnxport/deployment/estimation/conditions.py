"""Conditions that data files name, for what tables cannot express: each returns why a node is not taken, or "".

A condition gets the node, the argument beside its name in the file, and the refused nodes before this one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from onnxport.deployment.estimation.graph import find_tensors, is_derived
from onnxport.deployment.litert import conditions as tflite
from onnxport.formats.graph import Node

Condition = Callable[[Node, Any, Collection[Node]], str]


def _behind(node: Node, operators: Any, refused: Collection[Node]) -> str:
    """Check that it can be fused with its producer: one of `operators`, with no other reader."""
    if len(node.producers) == 1 and node.producers[0].op in operators:
        if node.producers[0] in refused:
            return f"{node.producers[0].label!r} before it is not taken"
        if len(node.producers[0].consumers) > 1:
            return f"{node.producers[0].label!r} has other readers, with which it cannot be fused"
        return ""
    return f"it is taken only directly behind {' or '.join(operators)}"


def _known_dimensions(node: Node, wanted: Any, _: Collection[Node]) -> str:
    """Check dimensions that have to be known: parameter to axes."""
    for key, axes in wanted.items():
        for tensor in find_tensors(node, key):
            if tensor.shape is None:
                return f"the shape of {tensor.name!r} is unknown"
            for axis in axes:
                if -len(tensor.shape) <= axis < len(tensor.shape) and not isinstance(tensor.shape[axis], int):
                    return f"dimension {axis % len(tensor.shape)} of {tensor.name!r} is open"
    return ""


def _before(node: Node, operators: Any, _: Collection[Node]) -> str:
    """Check that all its readers are of `operators`, with which it is taken."""
    others = [each for each in node.consumers if each.op not in operators]
    if others or not node.consumers:
        reader = others[0].op if others else "no node"
        return f"{reader} reads it, and it is taken only directly before {' or '.join(operators)}"
    return ""


def _not_all(node: Node, wanted: Any, _: Collection[Node]) -> str:
    """Check attributes that may not consist of one number only."""
    for name, number in wanted.items():
        given = node.attributes.get(name, ())
        if given and all(each == number for each in given):
            return f"{name} is [{', '.join(map(str, given))}]"
    return ""


def _last_axis(node: Node, name: Any, _: Collection[Node]) -> str:
    """Check that the axis in the attribute `name` is the last of the first input."""
    shape = node.inputs[0].shape if node.inputs and node.inputs[0] else None
    axis = node.attributes.get(name)
    if shape is None or axis is None or axis in (-1, len(shape) - 1):
        return ""
    return f"{name} is {axis} of rank {len(shape)}, it takes only the last one"


def _absent(node: Node, keys: Any, _: Collection[Node]) -> str:
    """Check that operands are absent."""
    for key in keys:
        for tensor in find_tensors(node, key):
            operand = f"input {int(key) + 1}" if key.isdecimal() else key
            return f"it takes no {operand}, which is {tensor.name!r}"
    return ""


def _not_given(node: Node, names: Any, _: Collection[Node]) -> str:
    """Check that attributes are absent."""
    return next((f"it takes no {name}" for name in names if name in node.attributes), "")


def _follows_from_sizes(node: Node, keys: Any, _: Collection[Node]) -> str:
    """Check operands that have to follow from constants and from the sizes of the inputs."""
    for key in keys:
        for tensor in find_tensors(node, key):
            if not is_derived(tensor, node):
                return (
                    f"{tensor.name!r} is computed from the inputs' values, it has to follow from their sizes"
                )
    return ""


def _has_producer(node: Node, _: Any, __: Collection[Node]) -> str:
    """Check that it reads from another node."""
    return "" if node.producers else "it reads an input of the model, with no node before it"


def _no_scalars(node: Node, _: Any, __: Collection[Node]) -> str:
    """Check that only constants have rank 0."""
    for tensor in (*node.inputs, *node.outputs):
        if tensor is not None and not tensor.is_constant and tensor.shape == ():
            return f"{tensor.name!r} is a scalar"
    return ""


CONDITIONS: Mapping[str, Condition] = {
    "absent": _absent,
    "before": _before,
    "behind": _behind,
    "has_producer": _has_producer,
    "known_dimensions": _known_dimensions,
    "last_axis": _last_axis,
    "no_scalars": _no_scalars,
    "not_all": _not_all,
    "not_given": _not_given,
    "settled": _follows_from_sizes,
    **tflite.CONDITIONS,
}

# Condition to the remedies for a node that fails it (`support.Reason`).
REMEDIES: Mapping[str, tuple[str, ...]] = {"known_dimensions": ("shape",)}
