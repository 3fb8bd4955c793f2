"""Reshape, Flatten, Squeeze and Unsqueeze, which are one operator in several spellings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnxport.formats.artifact import Dim
from onnxport.formats.model import dims_of
from onnxport.optimizers.patterns import integers, known_dims, producer, same_shape
from onnxport.optimizers.shape_arithmetic import Dimensions
from onnxport.optimizers.simplification.graph import ModelEditor, bypass, rewrite, simplification

VIEWS = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")


@simplification("settle-shape-arithmetic")
def settle_shape_arithmetic(editor: ModelEditor) -> int:
    """Give a Reshape constant sizes (0 and -1 for open ones) where the shapes determine them, so that the nodes
    that compute them can go; replace Slice of Shape by Shape with start and end.

    Keeps: A Reshape with two open sizes that are not its operand's own.
    """
    fixed = 0
    for graph in editor.graphs():
        known = Dimensions(graph)
        for node in list(graph):
            if node.domain == "" and node.op_type == "Reshape" and len(node.inputs) == 2:
                fixed += _fix_target(editor, node, known)
            elif node.domain == "" and node.op_type == "Slice":
                fixed += _part_of_shape(editor, node)
    return fixed


def _fix_target(editor: ModelEditor, node: ir.Node, known: Dimensions) -> int:
    source, target = node.inputs
    if source is None or target is None or target.const_value is not None:
        return 0
    wanted = None
    elements = known.elements(target)
    if elements is not None and elements.ndim == 1:
        copies = not node.attributes.get_int("allowzero", 0)
        wanted = target_for(source, list(elements), copies=copies)
    if wanted is None and node.outputs[0].shape is not None:
        wanted = target_for(source, dims_of(node.outputs[0]))
    if wanted is None:
        return 0
    return rewrite(node, "Reshape", [source, _sizes(editor, node, wanted)])


def target_for(source: ir.Value, dims: Sequence[Dim], *, copies: bool = False) -> list[int] | None:
    """Return a Reshape's constant target for these dimensions; None where two are open.

    With `copies`, `dims` are a target already, in which 0 copies and -1 takes the rest.
    """
    own = dims_of(source) if source.shape is not None else ()
    target: list[int] = []
    for axis, dim in enumerate(dims):
        if isinstance(dim, int) and (dim > 0 or (copies and dim in (0, -1))):
            target.append(int(dim))
        elif isinstance(dim, int) and dim == -1:
            target.append(-1)
        elif isinstance(dim, str) and axis < len(own) and own[axis] == dim:
            target.append(0)
        elif isinstance(dim, int):
            return None  # nothing has no elements, and a 0 would copy
        else:
            target.append(-1)
    return target if target.count(-1) <= 1 else None


def _sizes(editor: ModelEditor, node: ir.Node, sizes: Sequence[int]) -> ir.Value:
    return editor.constant(node, np.array(sizes, np.int64), f"{node.outputs[0].name}.shape")


def _part_of_shape(editor: ModelEditor, node: ir.Node) -> int:
    """Replace Slice of Shape: since opset 15 Shape has start and end."""
    shape = producer(node.inputs[0], "Shape") if editor.opset >= 15 and len(node.inputs) > 2 else None
    if shape is None or "start" in shape.attributes or "end" in shape.attributes:
        return 0
    starts, ends = integers(node.inputs[1]), integers(node.inputs[2])
    steps = integers(node.inputs[4]) if len(node.inputs) > 4 and node.inputs[4] is not None else [1]
    if starts is None or ends is None or steps != [1] or len(starts) != 1:
        return 0
    part = {"start": starts[0]} if ends[0] >= 2**31 - 1 else {"start": starts[0], "end": ends[0]}
    return rewrite(node, "Shape", [shape.inputs[0]], part)


@simplification("merge-reshapes")
def merge_reshapes(editor: ModelEditor) -> int:
    """Replace a chain of Reshape, Flatten, Squeeze and Unsqueeze by one Reshape, or by none; a Transpose that
    moves only axes of size 1 counts as one.

    Keeps: A chain that would need two open sizes.
    """
    return sum(_merge(editor, node) for node in editor.nodes(*VIEWS, "Transpose"))


def _merge(editor: ModelEditor, node: ir.Node) -> int:
    before = _view(producer(node.inputs[0], *VIEWS, "Transpose"))
    if before is None or _view(node) is None:
        return 0
    source, result = before.inputs[0], node.outputs[0]
    if source is None:
        return 0
    if same_shape(source, result):
        return bypass(node, source)
    # The target of a Reshape that copies no dimension holds for any operand.
    target = integers(node.inputs[1]) if node.op_type == "Reshape" and len(node.inputs) > 1 else None
    if not target or 0 in target:
        target = None if result.shape is None else target_for(source, dims_of(result))
    if target is None:
        return 0
    return rewrite(node, "Reshape", [source, _sizes(editor, node, target)])


def _view(node: ir.Node | None) -> ir.Node | None:
    """Return the node if it moves no element."""
    if node is None or node.op_type != "Transpose":
        return node
    dims = known_dims(node.inputs[0])
    perm = list(node.attributes.get_ints("perm", ()))
    if dims is None or not perm:
        return None
    moved = [axis for axis in perm if dims[axis] != 1]
    return node if moved == sorted(moved) else None
