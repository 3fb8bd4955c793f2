"""Chains of Cast, of Slice and of Concat."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.optimizers.patterns import integers, only_use, producer, rank_of
from onnxport.optimizers.simplification.graph import ModelEditor, bypass, rewrite, simplification


@simplification("merge-slices")
def merge_slices(editor: ModelEditor) -> int:
    """Replace two Slices along different axes by one, and two Concats along one axis by one.

    Keeps: Computed starts, ends and axes, and a Slice or Concat with other readers.
    """
    merged = sum(_merge_slice(editor, node) for node in editor.nodes("Slice"))
    return merged + sum(_merge_concats(node) for node in editor.nodes("Concat"))


def _merge_slice(editor: ModelEditor, node: ir.Node) -> int:
    before = producer(node.inputs[0], "Slice")
    if before is None or not only_use(node.inputs[0]):
        return 0
    first, second = _cut(before), _cut(node)
    if first is None or second is None or set(first) & set(second):
        return 0
    cuts = [(start, end, axis, step) for axis, (start, end, step) in sorted((first | second).items())]
    columns = np.array(cuts, np.int64).reshape(-1, 4).T.copy()
    operands = [
        editor.constant(node, column, f"{node.outputs[0].name}.{name}")
        for name, column in zip(("starts", "ends", "axes", "steps"), columns, strict=True)
    ]
    return rewrite(node, "Slice", [before.inputs[0], *operands])


def _cut(node: ir.Node) -> dict[int, tuple[int, int, int]] | None:
    """Return start, end and step by axis; None if one is computed."""
    rank = rank_of(node.inputs[0])
    if rank is None or len(node.inputs) < 3:
        return None  # attributes, before opset 10
    starts, ends = integers(node.inputs[1]), integers(node.inputs[2])
    if starts is None or ends is None:
        return None
    axes, steps = list(range(len(starts))), [1] * len(starts)
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        if (given := integers(node.inputs[3])) is None:
            return None
        axes = [axis % rank for axis in given]
    if len(node.inputs) > 4 and node.inputs[4] is not None:
        if (given := integers(node.inputs[4])) is None:
            return None
        steps = given
    return {axis: (a, b, step) for axis, a, b, step in zip(axes, starts, ends, steps, strict=True)}


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


@simplification("merge-casts")
def merge_casts(editor: ModelEditor) -> int:
    """Replace two Casts by one, or by none, where the first loses nothing.

    Keeps: A first Cast that rounds or truncates: float32 to float16, int64 to int32.
    """
    merged = 0
    for node in editor.nodes("Cast"):
        value, before = node.inputs[0], producer(node.inputs[0], "Cast")
        source = None if before is None else before.inputs[0]
        if source is None or source.dtype is None or value is None or value.dtype is None:
            continue
        if value.dtype.name not in _WIDER.get(source.dtype, "").split():
            continue
        if source.dtype == node.attributes.get_int("to"):
            merged += bypass(node, source)
        else:
            merged += rewrite(node, "Cast", [source], dict(node.attributes))
    return merged


# Type -> types that hold all its values and cast on to the same results.
_WIDER = {
    ir.DataType.BOOL: "INT8 UINT8 INT16 UINT16 INT32 UINT32 INT64 UINT64 FLOAT16 BFLOAT16 FLOAT DOUBLE",
    ir.DataType.INT8: "INT16 INT32 INT64 FLOAT16 FLOAT DOUBLE",
    ir.DataType.UINT8: "INT16 UINT16 INT32 UINT32 INT64 UINT64 FLOAT16 FLOAT DOUBLE",
    ir.DataType.INT16: "INT32 INT64 FLOAT DOUBLE",
    ir.DataType.UINT16: "INT32 UINT32 INT64 UINT64 FLOAT DOUBLE",
    ir.DataType.INT32: "INT64 DOUBLE",
    ir.DataType.FLOAT16: "FLOAT DOUBLE",
    ir.DataType.BFLOAT16: "FLOAT DOUBLE",
    ir.DataType.FLOAT: "DOUBLE",
}
