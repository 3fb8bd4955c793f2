"""The nodes that LiteRT's interpreter gave to XNNPACK's delegate, and why it did not give it the others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from onnxport.formats.graph import Node, Tensor, format_shape

_DELEGATE = "DELEGATE"


def delegated_operators(operators: Sequence[dict[str, Any]], count: int) -> list[set[int]]:
    """Return the partitions of the delegate, as places among the first `count` operators, those of the file.

    Args:
        operators: the interpreter's `_get_ops_details` after delegation: the file's operators, then one for each
        partition
            with the tensors that it reads from outside and gives to others. The partition lies between them.
    """
    made = {tensor: index for index, each in enumerate(operators[:count]) for tensor in each["outputs"]}
    found = []
    for each in operators[count:]:
        if each["op_name"] != _DELEGATE:
            continue
        outside = {int(tensor) for tensor in each["inputs"]}
        waiting, inside = [int(tensor) for tensor in each["outputs"]], set[int]()
        while waiting:
            tensor = waiting.pop()
            if tensor in outside or tensor not in made or made[tensor] in inside:
                continue
            inside.add(made[tensor])
            waiting += [int(source) for source in operators[made[tensor]]["inputs"]]
        found.append(inside)
    return found


def refusal_reason(node: Node) -> str:
    """Return why XNNPACK does not take `node`, as far as its source tells."""
    known = _known()
    if node.op not in known["operators"].split():
        return "XNNPACK has no such operator"
    types = known["types"].split()
    for index in known["constant"].get(node.op, ()):
        tensor = node.inputs[index] if index < len(node.inputs) else None
        if tensor is not None and not tensor.is_constant:
            return f"{tensor.name!r} is computed at run time, it has to be constant"
    for tensor in _computed(node):
        if tensor.dtype not in types:
            return f"{tensor.name!r} is {tensor.dtype}, it takes {', '.join(types)}"
        if tensor.shape is not None and len(tensor.shape) > known["most_dimensions"]:
            return f"rank {len(tensor.shape)} of {tensor.name!r}, at most {known['most_dimensions']}"
    if open_ := next((tensor for tensor in _computed(node) if not tensor.is_static), None):
        return f"the shape of {open_.name!r} is open: {format_shape(open_.shape)}"
    return "XNNPACK does not take this form of it"


def _computed(node: Node) -> list[Tensor]:
    return [
        tensor for tensor in (*node.inputs, *node.outputs) if tensor is not None and not tensor.is_constant
    ]


@cache
def _known() -> dict[str, Any]:
    import yaml

    text = files("onnxport.deployment.litert").joinpath("xnnpack.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded
