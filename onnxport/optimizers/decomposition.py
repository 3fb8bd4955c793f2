"""Composite operators rewritten into simpler ones, in ONNX itself, so that every target shares the rewriting.

What has a rewriting of ours (rewritings) goes by that. ONNX defines many operators as functions
of simpler ones (Softplus, ReduceL2, GroupNormalization, ...). Such an operator that the target does not hold natively
is replaced by that very definition, taken from the schema.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx
import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.formats.model import Model, dims_of
from onnxport.optimizers import rewrites  # noqa: F401 - fills the registry
from onnxport.optimizers.definitions import fit, own_definition, shared_definition
from onnxport.optimizers.rewrites.registry import REASON, rewrite, rewritten_ops


def decompose(model: Model, native: Collection[str]) -> list[str]:
    """Rewrites operators outside `native`, or expands them where ONNX defines them as functions, once.

    Returns their names, sorted.

    A definition may use further composite operators, which need the element types of its values to be inferred
    before they can be expanded in turn.
    """
    rewritten = rewrite(model, native)
    found = _definitions(model, native)
    if found:
        model.ir.functions.update({function.identifier(): function for function in found})
        common.InlinePass()(model.ir)
    if found or rewritten:
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model.ir)
    return sorted({*rewritten, *(function.name for function in found)})


def _definitions(model: Model, native: Collection[str]) -> list[ir.Function]:
    """A defining function for each composite node, shared by an op's nodes where it is the same for all."""
    shared: dict[str, ir.Function | None] = {}
    own: list[ir.Function] = []
    for number, node in enumerate(model.graph.all_nodes()):
        if node.domain not in ("", "ai.onnx") or not onnx.defs.has(node.op_type):
            continue
        if node.op_type in native:
            continue
        if node.op_type in rewritten_ops() and REASON not in node.metadata_props:
            continue  # its turn comes when its types are known
        if node.op_type not in shared:
            shared[node.op_type] = shared_definition(node.op_type, model.opset)
        function = shared[node.op_type] or own_definition(node, model.opset, _type_of)
        if function is None:
            continue
        fit(node, function, model.opset)
        if shared[node.op_type] is None:
            node.overload = function.overload = str(number)
            own.append(function)
    return [*(function for function in shared.values() if function is not None), *own]


def _type_of(value: ir.Value | None) -> onnx.TypeProto:
    if value is None or value.dtype is None:
        return onnx.TypeProto()
    shape = None if value.shape is None else dims_of(value)
    return onnx.helper.make_tensor_type_proto(value.dtype.value, shape)
