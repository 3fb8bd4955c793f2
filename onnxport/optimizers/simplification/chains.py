"""Chains of Cast, of Slice, of Concat and of Transpose."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.optimizers.patterns import integers, known_dims, only_use, producer, rank_of
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


# Elementwise operators of one operand: they compute the same in any order of axes.
UNARY = frozenset(
    (
        "Abs Cast Ceil Clip Cos Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log Mish Neg Not Reciprocal "
        "Relu Round Selu Sigmoid Sign Sin Softplus Softsign Sqrt Tanh ThresholdedRelu"
    ).split()
)


@simplification("merge-transposes")
def merge_transposes(editor: ModelEditor) -> int:
    """Replace a chain of Transposes by one, or by none, also with elementwise operators between them; so for one
    between two Reshapes that join axes and split them again; a Gemm absorbs one.

    Keeps: A Transpose with other readers.
    """
    merged = sum(_merge_transpose(node) for node in editor.nodes("Transpose"))
    merged += sum(_into_gemm(node) for node in editor.nodes("Gemm"))
    return merged + sum(_between_reshapes(node) for node in editor.nodes("Reshape"))


def _merge_transpose(node: ir.Node) -> int:
    """Merge Transpose ... Transpose; nodes between them compute on the first's operand."""
    between: list[ir.Node] = []
    value = node.inputs[0]
    while (step := producer(value, *UNARY)) is not None and only_use(value):
        between.append(step)
        value = step.inputs[0]
    first = producer(value, "Transpose")
    if first is None or (between and not only_use(value)):
        return 0
    one, two = _perm(first), _perm(node)
    source = first.inputs[0]
    if one is None or two is None or source is None:
        return 0
    both = [one[axis] for axis in two]
    if not between:
        if both == sorted(both):
            return bypass(node, source)
        return rewrite(node, "Transpose", [source], {"perm": both})
    if both != sorted(both):
        return 0  # it would only move
    between[-1].replace_input_with(0, source)
    for step in between:
        step.outputs[0].shape = None
    between[0].outputs[0].shape = node.outputs[0].shape
    if bypass(node, between[0].outputs[0]):
        return 1
    between[-1].replace_input_with(0, value)
    return 0


def _between_reshapes(node: ir.Node) -> int:
    """Merge Reshape, Transpose, Reshape where the first joins leading axes and the last splits them again."""
    middle = producer(node.inputs[0], "Transpose")
    first = None if middle is None else producer(middle.inputs[0], "Reshape")
    if middle is None or first is None:
        return 0
    perm = _perm(middle)
    before, joined, after = (
        known_dims(value) for value in (first.inputs[0], first.outputs[0], node.outputs[0])
    )
    if before is None or joined is None or after is None or not perm or perm[0] or len(before) < len(joined):
        return 0
    leading = len(before) - len(joined) + 1
    moved = [*range(leading), *(leading - 1 + axis for axis in perm[1:])]
    known = None not in before and before[leading:] == joined[1:]
    if not known or after != tuple(before[axis] for axis in moved):
        return 0
    return rewrite(node, "Transpose", [first.inputs[0]], {"perm": moved})


def _perm(node: ir.Node) -> list[int] | None:
    if "perm" in node.attributes:
        return [int(axis) for axis in node.attributes["perm"].as_ints()]
    rank = rank_of(node.inputs[0])
    return None if rank is None else list(reversed(range(rank)))


def _into_gemm(node: ir.Node) -> int:
    merged = 0
    for index, name in ((0, "transA"), (1, "transB")):
        before = producer(node.inputs[index], "Transpose")
        if before is not None and _perm(before) == [1, 0] and before.inputs[0] is not None:
            node.replace_input_with(index, before.inputs[0])
            node.attributes[name] = ir.AttrInt64(name, 1 - node.attributes.get_int(name, 0))
            merged += 1
    return merged
