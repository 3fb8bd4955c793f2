"""Transposes: several in a row are one, and a product takes one in."""

from __future__ import annotations

import onnx_ir as ir

from onnxport.optimizers.simplification.registry import simplification
from onnxport.optimizers.simplification.scene import (
    Scene,
    bypass,
    only_use,
    producer,
    rank_of,
    rewrite,
)

# Elementwise operators of one operand: they compute the same in any order of axes.
UNARY = frozenset(
    (
        "Abs Cast Ceil Clip Cos Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log Mish Neg Not Reciprocal "
        "Relu Round Selu Sigmoid Sign Sin Softplus Softsign Sqrt Tanh ThresholdedRelu"
    ).split()
)


@simplification(
    "merge-transposes",
    "Makes one Transpose of several in a row, or none, elementwise operators between them or not; Gemm takes one in.",
    keeps="A Transpose that others read as well.",
)
def merge_transposes(scene: Scene) -> int:
    merged = 0
    for node in scene.nodes("Transpose"):
        merged += _merge(node)
    for node in scene.nodes("Gemm"):
        merged += _into_gemm(node)
    return merged


def _merge(node: ir.Node) -> int:
    """Transpose ... Transpose: what lies between computes on the first's operand."""
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
        return 0  # it would stand elsewhere, and there would be as many
    between[-1].replace_input_with(0, source)
    for step in between:
        step.outputs[0].shape = None
    between[0].outputs[0].shape = node.outputs[0].shape
    if bypass(node, between[0].outputs[0]):
        return 1
    between[-1].replace_input_with(0, value)
    return 0


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
