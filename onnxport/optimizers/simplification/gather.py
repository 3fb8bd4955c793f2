"""GatherND by counting indices, which exporters write for transformers' masks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnxport.formats.artifact import Dim
from onnxport.formats.model import dims_of
from onnxport.optimizers.patterns import is_op, number, producer, rank_of, same_shape
from onnxport.optimizers.simplification.graph import ModelEditor, bypass, rewrite, simplification

_VIEWS = ("Reshape", "Squeeze", "Unsqueeze")


@simplification("drop-counting-gathers")
def drop_counting_gathers(editor: ModelEditor) -> int:
    """Replace a GatherND whose indices count through its whole operand (0, 1, 2 ... along each axis) by a
    Reshape, and treat such counts as not negative where they are compared with 0.

    Keeps: Indices in another order or of a part, and a comparison whose result is larger without it.
    """
    dropped = sum(_replace_gather(editor, node) for node in editor.nodes("GatherND"))
    return dropped + sum(_drop_known_comparison(editor, node) for node in editor.nodes("GreaterOrEqual"))


def _replace_gather(editor: ModelEditor, node: ir.Node) -> int:
    data, indices = node.inputs
    joined = producer(indices, "Concat")
    result = node.outputs[0]
    if data is None or data.shape is None or joined is None or result.shape is None or indices is None:
        return 0
    if node.attributes.get_int("batch_dims", 0) or indices.shape is None:
        return 0
    dims, sizes = dims_of(indices), dims_of(data)
    if joined.attributes.get_int("axis") not in (-1, len(dims) - 1) or len(joined.inputs) != len(sizes):
        return 0
    axes = [axis for value in joined.inputs if (axis := _counted_axis(value)) is not None]
    if len(axes) < len(sizes) or axes != sorted(set(axes)):
        return 0
    if any(dims[axis] is None or dims[axis] != size for axis, size in zip(axes, sizes, strict=True)):
        return 0
    if any(dim != 1 for axis, dim in enumerate(dims[:-1]) if axis not in axes):
        return 0
    target = _target(sizes, dims[:-1], axes)
    if target is None:
        return 0
    constant = editor.constant(node, np.array(target, np.int64), f"{result.name}.shape")
    return rewrite(node, "Reshape", [data, constant])


def _target(sizes: Sequence[Dim], dims: Sequence[Dim], axes: Sequence[int]) -> list[int] | None:
    """Return a Reshape's target: 1s between the operand's axes."""
    target: list[int] = []
    for axis, dim in enumerate(dims):
        same = axis < len(sizes) and axis in axes and axes.index(axis) == axis
        target.append(dim if isinstance(dim, int) and dim > 0 else 0 if same else -1)
    return target if target.count(-1) <= 1 else None


def _counted_axis(value: ir.Value | None) -> int | None:
    """Return the axis along which a value counts 0, 1, 2 ... to the end, equal along all others."""
    node = producer(value, "Range", "Expand", *_VIEWS)
    if value is None or value.shape is None or node is None:
        return None
    dims = dims_of(value)
    if node.op_type == "Range":
        return 0 if number(node.inputs[0]) == 0 and number(node.inputs[2]) == 1 else None
    source = node.inputs[0]
    axis = _counted_axis(source)
    if axis is None or source is None or source.shape is None:
        return None
    before = dims_of(source)
    if node.op_type == "Expand":
        axis += len(dims) - len(before)
        return axis if dims[axis] == before[axis - len(dims)] else None
    # A view keeps the order: the size itself, among ones before and behind in both.
    if any(dim != 1 for other, dim in enumerate(before) if other != axis):
        return _same_but_ones(before, dims, axis)
    places = [other for other, dim in enumerate(dims) if dim != 1]
    return places[0] if len(places) == 1 and dims[places[0]] == before[axis] else None


def _same_but_ones(before: Sequence[Dim], dims: Sequence[Dim], axis: int) -> int | None:
    """Return the new place of an axis when only axes of size 1 came or went."""
    kept = [other for other, dim in enumerate(before) if dim != 1]
    now = [other for other, dim in enumerate(dims) if dim != 1]
    same = None not in before and [before[other] for other in kept] == [dims[other] for other in now]
    return now[kept.index(axis)] if same and axis in kept else None


def _drop_known_comparison(editor: ModelEditor, node: ir.Node) -> int:
    """Replace And(x, count >= 0), whose second operand is always true, by x."""
    if number(node.inputs[1]) != 0 or not _counts(node.inputs[0]):
        return 0
    dropped = 0
    for user, index in list(node.outputs[0].uses()):
        if user.op_type == "And" and user.domain == "":
            other = user.inputs[1 - index]
            if same_shape(other, user.outputs[0]) or _broadcasts_later(user, other):
                dropped += bypass(user, other)
    return dropped


def _broadcasts_later(node: ir.Node, narrow: ir.Value | None) -> bool:
    """Return whether a mask may be as narrow as `narrow`: it selects numbers that are added to a wider value."""
    mask = node.outputs[0]
    if narrow is None or narrow.shape is None or mask.is_graph_output():
        return False
    choices = []
    for user, index in mask.uses():
        chosen = user.inputs[1:]
        if index or not is_op(user, "Where") or any(number(each) is None for each in chosen):
            return False
        if user.outputs[0].is_graph_output() or any((rank_of(v) or 0) > len(narrow.shape) for v in chosen):
            return False
        choices.append(user.outputs[0])
    for user, index in (use for choice in choices for use in choice.uses()):
        if not is_op(user, "Add") or not same_shape(user.inputs[1 - index], user.outputs[0]):
            return False
    for choice in choices:
        choice.shape = narrow.shape
    return True


def _counts(value: ir.Value | None) -> bool:
    node = producer(value, "Range", "Expand", *_VIEWS)
    if node is None:
        return False
    if node.op_type != "Range":
        return _counts(node.inputs[0])
    first, step = number(node.inputs[0]), number(node.inputs[2])
    return first is not None and first >= 0 and step is not None and step > 0
