"""What is known before any input: constants computed once, kept once, and nodes that nothing reads removed."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.formats.model import Model
from onnxport.optimizers import shape_inference
from onnxport.optimizers.constant_branches import inline_known_branches
from onnxport.optimizers.constant_folding import fold_constants
from onnxport.optimizers.simplification.graph import LARGE, Scene
from onnxport.optimizers.simplification.registry import simplification

# Every round resolves the shapes behind one more layer of shape arithmetic; real models need two or three.
_ROUNDS = 20
# Weights of more bytes are not compared: reading them all costs more than a second copy of one, which nobody writes.
_COMPARED = 16 * 2**20
# Smaller ones each graph has for itself: shape inference reads no others there.
_SMALL = 1024  # bytes
# What is folded may be larger than what it is made of by no more: a model is to become smaller.
_MAX_FOLDED = 64 * 2**10  # bytes


@simplification(
    "inline-functions",
    "Writes functions of the model's own out where they are called, and makes constants initializers.",
    keeps="An initializer that is listed as an input is an input no more: nothing here reads a default.",
    required=True,
)
def inline_functions(scene: Scene) -> int:
    model, functions = scene.model.ir, len(scene.model.ir.functions)
    if functions:
        common.InlinePass()(model)
        scene.forget_names()
    lifted = common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model).modified
    freed = common.RemoveInitializersFromInputsPass()(model).modified
    return functions + lifted + freed


@simplification(
    "fold-constants",
    "Computes what depends on no input, and sizes that the signature tells, by ONNX Runtime itself.",
    keeps="QuantizeLinear and DequantizeLinear, random numbers, and what would be larger than 64 KiB "
    "and than its operands.",
)
def fold(scene: Scene) -> int:
    folded = 0
    for _ in range(_ROUNDS):
        new = fold_constants(scene.model, limit=_MAX_FOLDED)
        folded += new
        if not new or not shape_inference.infer(scene.model):
            return folded
    return folded


@simplification(
    "take-known-branches",
    "Puts the branch that will be taken in the place of an If whose condition is known.",
)
def take_known_branches(scene: Scene) -> int:
    taken = 0
    while new := inline_known_branches(scene.model):
        taken += new
    if taken:
        scene.forget_names()
        shape_inference.infer(scene.model)
    return taken


@simplification(
    "share-constants",
    "Keeps one of several constants with the same elements, those of branches and loop bodies as well.",
    keeps="Those of more than 16 MiB, and text.",
)
def share_constants(scene: Scene) -> int:
    shared = _share_among_graphs(scene)
    return shared + sum(_share(graph) for graph in scene.graphs())


def _share_among_graphs(scene: Scene) -> int:
    """Large constants that branches and bodies have alike move to the main graph, which all of them see."""
    main = scene.model.graph
    alike: dict[Any, list[tuple[ir.Graph, ir.Value]]] = {}
    for graph in scene.graphs():
        for value in graph.initializers.values():
            large = value.const_value is not None and value.const_value.nbytes > _SMALL
            if large and not value.is_graph_output() and (key := _identity(value)) is not None:
                alike.setdefault(key, []).append((graph, value))
    shared = 0
    for found in alike.values():
        if len(found) > 1 and any(graph is not main for graph, _ in found):
            first = next((value for graph, value in found if graph is main), None)
            for graph, value in found:
                if graph is not main:
                    del graph.initializers[value.name or ""]
                    if first is None:
                        first = scene.moved(value, main)
                    else:
                        value.replace_all_uses_with(first)
                    shared += 1
    return shared


def _share(graph: ir.Graph) -> int:
    first: dict[Any, ir.Value] = {}
    shared = 0
    for value in list(graph.initializers.values()):
        key = _identity(value)
        if key is None or value.is_graph_output() or value.is_graph_input():
            continue
        other = first.setdefault(key, value)
        if other is not value:
            value.replace_all_uses_with(other)
            del graph.initializers[value.name or ""]
            shared += 1
    return shared


def _identity(value: ir.Value) -> tuple[Any, ...] | None:
    tensor = value.const_value
    if tensor is None or tensor.dtype == ir.DataType.STRING or tensor.nbytes > _COMPARED:
        return None
    data = tensor.tobytes()
    return tensor.dtype, tuple(tensor.shape), data if len(data) < LARGE else hashlib.sha256(data).digest()


@simplification(
    "remove-unused", "Removes nodes and constants that no output depends on, and domains without a node."
)
def remove_unused(scene: Scene) -> int:
    return sweep(scene.model)


def sweep(model: Model) -> int:
    """Removes what nothing reads; how many nodes and constants."""
    before = _held(model)
    common.RemoveUnusedNodesPass()(model.ir)
    for graph in model.ir.graphs():
        for name, value in list(graph.initializers.items()):
            if not value.uses() and not value.is_graph_output() and not value.is_graph_input():
                del graph.initializers[name]
    used = {node.domain for node in model.graph.all_nodes()} | {"", "ai.onnx"}
    for domain in [each for each in model.ir.opset_imports if each not in used]:
        del model.ir.opset_imports[domain]
    return before - _held(model)


def _held(model: Model) -> int:
    return sum(1 for _ in model.graph.all_nodes()) + sum(
        len(graph.initializers) for graph in model.ir.graphs()
    )


def zeros(value: ir.Value | None) -> bool:
    """Whether every element of a value is known to be 0, however many there are."""
    if value is None:
        return False
    if value.const_value is not None:
        tensor = value.const_value
        return (
            tensor.dtype != ir.DataType.STRING and tensor.nbytes <= _COMPARED and not np.any(tensor.numpy())
        )
    node = value.producer()
    if node is None or node.domain != "":
        return False
    if node.op_type == "ConstantOfShape":
        given = node.attributes.get("value")
        return given is None or not np.any(given.as_tensor().numpy())
    if node.op_type == "Concat":
        return all(zeros(each) for each in node.inputs)
    return node.op_type in _MOVES and zeros(node.inputs[0])


# What gives zeros for zeros.
_MOVES = frozenset(
    "Cast Expand Flatten Gather Identity Reshape Slice Squeeze Tile Transpose Unsqueeze".split()
)
