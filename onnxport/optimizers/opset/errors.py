"""Refusals of nodes that have no form at an opset, named as the user knows them."""

from __future__ import annotations

import onnx_ir as ir

from onnxport.core.errors import CannotConvertError, Refusal

# Notes that a node carries on the way down: of which node of the user's it is a part, and why that one's own older
# form, where there is one, would not do.
PART_OF, WHY = "onnxport.part_of", "onnxport.why_not"


class LiftError(CannotConvertError):
    """A model that cannot be converted to the opset; `refusals` lists the nodes in the way."""


def refusal(node: ir.Node, op_type: str, why: str) -> Refusal:
    """Name the node as Netron shows it: by its own name, else by its first result's."""
    return Refusal(op_type, node.name or next((o.name for o in node.outputs if o.name), "") or "", why)


def part_of(node: ir.Node) -> str:
    """Return the PART_OF note for the nodes that replace this one."""
    named = refusal(node, node.op_type, "")
    return f"{named.op} {named.node}"


def refusal_of_part(node: ir.Node, why: str) -> Refusal:
    """Name the user's node of which this one is a part, if it is one."""
    if PART_OF not in node.metadata_props:
        return refusal(node, node.op_type, why)
    op, _, name = node.metadata_props[PART_OF].partition(" ")
    return Refusal(op, name, node.metadata_props.get(WHY, f"it is made of {node.op_type}, and {why}"))
