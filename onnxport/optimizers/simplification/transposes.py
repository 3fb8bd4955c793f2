"""Chains of Transpose, and a Transpose absorbed by Gemm."""

from __future__ import annotations

import onnx_ir as ir

from onnxport.optimizers.patterns import known_dims, only_use, producer, rank_of
from onnxport.optimizers.simplification.graph import ModelEditor, bypass, rewrite, simplification

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
    merged = sum(_merge(node) for node in editor.nodes("Transpose"))
    merged += sum(_into_gemm(node) for node in editor.nodes("Gemm"))
    return merged + sum(_between_reshapes(node) for node in editor.nodes("Reshape"))


def _merge(node: ir.Node) -> int:
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
