"""How a node that cannot be brought to an opset is named: as the user knows it."""

from __future__ import annotations

import onnx_ir as ir

from onnxport.core.errors import CannotConvertError, Refusal

# Notes that a node carries on the way down: of which node of the user's it is a part, and why that one's own older
# form, where there is one, would not do.
PART_OF, WHY = "onnxport.part_of", "onnxport.why_not"


class LiftError(CannotConvertError):
    """The model cannot be brought to the opset asked for; `refusals` lists every node in the way."""


def refusal(node: ir.Node, op_type: str, why: str) -> Refusal:
    """Names the node as Netron shows it: its own name, else that of what it makes."""
    return Refusal(op_type, node.name or next((o.name for o in node.outputs if o.name), "") or "", why)


def part_of(node: ir.Node) -> str:
    """What the nodes that take its place carry as PART_OF."""
    named = refusal(node, node.op_type, "")
    return f"{named.op} {named.node}"


def refusal_of_part(node: ir.Node, why: str) -> Refusal:
    """In the words for the user's node, if this one is a part of it."""
    if PART_OF not in node.metadata_props:
        return refusal(node, node.op_type, why)
    op, _, name = node.metadata_props[PART_OF].partition(" ")
    return Refusal(op, name, node.metadata_props.get(WHY, f"it is made of {node.op_type}, and {why}"))
