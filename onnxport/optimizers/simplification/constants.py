"""Constants: computed once, taken branches, unused nodes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.formats.model import Model
from onnxport.optimizers import shape_inference
from onnxport.optimizers.branches import inline_known_branches
from onnxport.optimizers.constant_folding import fold_constants
from onnxport.optimizers.simplification.graph import ModelEditor, simplification

# Every round resolves the shapes behind one more layer of shape arithmetic; real models need two or three.
_ROUNDS = 20
# Larger constants are not searched for zeros.
_READ = 16 * 2**20  # bytes
# A folded result above this must not be larger than its operands: the model must not grow.
_MAX_FOLDED = 64 * 2**10  # bytes


@simplification("inline-functions", first=True)
def inline_functions(editor: ModelEditor) -> int:
    """Inline the model's functions where they are called, and make constants initializers.

    Keeps: An initializer that is listed as an input is no longer an input: no pass reads a default.
    """
    model, functions = editor.model.ir, len(editor.model.ir.functions)
    if functions:
        common.InlinePass()(model)
        editor.forget_names()
    lifted = common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model).modified
    freed = common.RemoveInitializersFromInputsPass()(model).modified
    return functions + lifted + freed


@simplification("fold-constants")
def fold(editor: ModelEditor) -> int:
    """Compute nodes that depend on no input, and sizes that follow from the signature, with ONNX Runtime.

    Keeps: QuantizeLinear and DequantizeLinear, random numbers, and results above 64 KiB that are larger than
    their operands.
    """
    folded = 0
    for _ in range(_ROUNDS):
        new = fold_constants(editor.model, limit=_MAX_FOLDED)
        folded += new
        if not new or not shape_inference.infer(editor.model):
            return folded
    return folded


@simplification("take-known-branches")
def take_known_branches(editor: ModelEditor) -> int:
    """Replace an If whose condition is known by the branch that it takes."""
    taken = 0
    while new := inline_known_branches(editor.model):
        taken += new
    if taken:
        editor.forget_names()
        shape_inference.infer(editor.model)
    return taken


@simplification("remove-unused")
def remove_unused(editor: ModelEditor) -> int:
    """Remove nodes and constants that no output depends on, and domains without a node."""
    return sweep(editor.model)


def sweep(model: Model) -> int:
    """Remove nodes and constants without readers; return how many."""

    def count() -> int:
        constants = sum(len(graph.initializers) for graph in model.ir.graphs())
        return constants + sum(1 for _ in model.graph.all_nodes())

    before = count()
    common.RemoveUnusedNodesPass()(model.ir)
    for graph in model.ir.graphs():
        for name, value in list(graph.initializers.items()):
            if not value.uses() and not value.is_graph_output() and not value.is_graph_input():
                del graph.initializers[name]
    used = {node.domain for node in model.graph.all_nodes()} | {"", "ai.onnx"}
    for domain in [each for each in model.ir.opset_imports if each not in used]:
        del model.ir.opset_imports[domain]
    return before - count()


def is_zero(value: ir.Value | None) -> bool:
    """Return whether every element of a value is known to be 0."""
    if value is None:
        return False
    if value.const_value is not None:
        tensor = value.const_value
        return tensor.dtype != ir.DataType.STRING and tensor.nbytes <= _READ and not np.any(tensor.numpy())
    node = value.producer()
    if node is None or node.domain != "":
        return False
    if node.op_type == "ConstantOfShape":
        given = node.attributes.get("value")
        return given is None or not np.any(given.as_tensor().numpy())
    if node.op_type == "Concat":
        return all(is_zero(each) for each in node.inputs)
    return node.op_type in _MOVES and is_zero(node.inputs[0])


# Operators that return zeros for zeros.
_MOVES = frozenset(
    "Cast Expand Flatten Gather Identity Reshape Slice Squeeze Tile Transpose Unsqueeze".split()
)
