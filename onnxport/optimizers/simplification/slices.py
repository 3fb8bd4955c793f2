"""Chains of Slice and Concat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnxport.optimizers.simplification.graph import (
    ModelEditor,
    integers,
    only_use,
    producer,
    rank_of,
    rewrite,
)
from onnxport.optimizers.simplification.registry import simplification


@simplification("merge-slices")
def merge_slices(editor: ModelEditor) -> int:
    """Replace two Slices along different axes by one, and two Concats along one axis by one.

    Keeps: Computed starts, ends and axes, and a Slice or Concat with other readers.
    """
    return sum(_merge(editor, node) for node in editor.nodes("Slice")) + sum(
        _merge_concats(node) for node in editor.nodes("Concat")
    )


def _merge(editor: ModelEditor, node: ir.Node) -> int:
    before = producer(node.inputs[0], "Slice")
    if before is None or not only_use(node.inputs[0]):
        return 0
    first, second = _cut(before), _cut(node)
    if first is None or second is None or set(first) & set(second):
        return 0
    both = {**first, **second}
    axes = sorted(both)
    columns: list[Sequence[int]] = [
        [both[axis][0] for axis in axes],
        [both[axis][1] for axis in axes],
        axes,
        [both[axis][2] for axis in axes],
    ]
    names = ("starts", "ends", "axes", "steps")
    operands = [
        editor.constant(node, np.array(column, np.int64), f"{node.outputs[0].name}.{name}")
        for name, column in zip(names, columns, strict=True)
    ]
    return rewrite(node, "Slice", [before.inputs[0], *operands])


def _cut(node: ir.Node) -> dict[int, tuple[int, int, int]] | None:
    """Return start, end and step by axis."""
    rank = rank_of(node.inputs[0])
    if rank is None or len(node.inputs) < 3:
        return None  # attributes, before opset 10
    given = [integers(value) if value is not None else None for value in node.inputs[1:]]
    given += [None] * (4 - len(given))
    starts, ends, axes, steps = given
    if starts is None or ends is None:
        return None
    for index, column in ((3, axes), (4, steps)):
        if column is None and len(node.inputs) > index and node.inputs[index] is not None:
            return None
    axes = list(range(len(starts))) if axes is None else [axis % rank for axis in axes]
    steps = [1] * len(starts) if steps is None else steps
    return {axis: cut for axis, *cut in zip(axes, starts, ends, steps, strict=True)}  # type: ignore[misc]


def _merge_concats(node: ir.Node) -> int:
    """Merge a Concat of Concats along the same axis."""
    axis, rank = node.attributes.get_int("axis"), rank_of(node.outputs[0])
    operands: list[ir.Value | None] = []
    for value in node.inputs:
        inner = producer(value, "Concat")
        theirs = None if inner is None else inner.attributes.get_int("axis")
        same = theirs == axis or (
            rank is not None and theirs is not None and axis is not None and (theirs - axis) % rank == 0
        )
        operands += inner.inputs if inner is not None and same and only_use(value) else [value]
    if len(operands) == len(node.inputs):
        return 0
    return rewrite(node, "Concat", operands, dict(node.attributes))
