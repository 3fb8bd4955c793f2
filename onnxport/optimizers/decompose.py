"""Composite operators rewritten into simpler ones, in ONNX itself, so that every target shares the rewriting.

ONNX defines many operators as functions of simpler ones (Softplus, ReduceL2, GroupNormalization, ...). An
operator that the target does not hold natively is replaced by that very definition, taken from the schema.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx
import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.model import Model


def decompose(model: Model, native: Collection[str]) -> list[str]:
    """Expands operators outside `native` that ONNX defines as functions; returns their names, sorted.

    Repeats until nothing changes: a definition may use further composite operators.
    """
    expanded: set[str] = set()
    while found := _definitions(model, native):
        for function in found.values():
            model.ir.functions[function.identifier()] = function
        expanded |= set(found)
        common.InlinePass()(model.ir)
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model.ir)
    return sorted(expanded)


def _definitions(model: Model, native: Collection[str]) -> dict[str, ir.Function]:
    """The defining function of each composite operator in the graph."""
    functions: dict[str, ir.Function] = {}
    for node in model.graph.all_nodes():
        if node.domain not in ("", "ai.onnx") or node.op_type in native or node.op_type in functions:
            continue
        function = _definition(model, node)
        if function is not None:
            functions[node.op_type] = function
    return functions


def _definition(model: Model, node: ir.Node) -> ir.Function | None:
    if not onnx.defs.has(node.op_type):
        return None
    schema = onnx.defs.get_schema(node.op_type, model.opset)
    versions = [version for version in schema.function_opset_versions if version <= model.opset]
    if not versions:
        return None
    proto = onnx.FunctionProto()
    proto.ParseFromString(schema.get_function_with_opset_version(max(versions)))
    if not proto.node:
        return None
    function: ir.Function = ir.serde.deserialize_function(proto)
    # The schema gives the newest definition that holds at this opset, under the version it was written for.
    function.opset_imports[""] = model.opset
    return function
