"""Composite operators replaced by simpler ONNX operators, for all targets alike.

A rewriting of ours comes first (rewrites/). Else the operator is replaced by ONNX's own function definition from
the schema (Softplus, ReduceL2, GroupNormalization, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import onnx
import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.formats.model import Model, dims_of
from onnxport.optimizers import rewrites  # noqa: F401 - fills the registry
from onnxport.optimizers.node_marks import REASON
from onnxport.optimizers.rewrites.registry import rewrite, rewritten_ops


def decompose(model: Model, native: Collection[str]) -> list[str]:
    """Replace, once, operators outside `native` by their rewriting or definition; return their names, sorted.

    Composite operators inside a definition need inferred types before the next call expands them.
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
    """Return a defining function for each composite node, shared by an operator's nodes where possible."""
    shared: dict[str, ir.Function | None] = {}
    own: list[ir.Function] = []
    for number, node in enumerate(model.graph.all_nodes()):
        is_onnx = node.domain in ("", "ai.onnx") and onnx.defs.has(node.op_type)
        if not is_onnx or node.op_type in native:
            continue
        if node.op_type in rewritten_ops() and REASON not in node.metadata_props:
            continue  # rewritten once its types are known
        if node.op_type not in shared:
            shared[node.op_type] = shared_definition(node.op_type, model.opset)
        function = shared[node.op_type] or own_definition(node, model.opset, _type_of)
        if function is None:
            continue
        complete_node(node, function, model.opset)
        if shared[node.op_type] is None:
            node.overload = function.overload = str(number)
            own.append(function)
    return [*(function for function in shared.values() if function is not None), *own]


def _type_of(value: ir.Value | None) -> onnx.TypeProto:
    if value is None or value.dtype is None:
        return onnx.TypeProto()
    shape = None if value.shape is None else dims_of(value)
    return onnx.helper.make_tensor_type_proto(value.dtype.value, shape)


# Returns a value's type; an empty one if unknown or the value is absent.
TypeOf = Callable[[ir.Value | None], onnx.TypeProto]


def shared_definition(op: str, opset: int) -> ir.Function | None:
    """Return the definition that all nodes of the operator share; None if there is none."""
    # onnx's type stubs lack the function accessors.
    schema: Any = onnx.defs.get_schema(op, opset)
    version = _newest(schema.function_opset_versions, opset)
    return None if version is None else _function(schema.get_function_with_opset_version(version), opset)


def own_definition(node: ir.Node, opset: int, type_of: TypeOf) -> ir.Function | None:
    """Return the definition that depends on the node's attributes and input types; None if there is none."""
    schema: Any = onnx.defs.get_schema(node.op_type, opset)
    version = _newest(schema.context_dependent_function_opset_versions, opset)
    if version is None:
        return None
    types = [type_of(value).SerializeToString() for value in node.inputs]
    proto = ir.serde.serialize_node(node).SerializeToString()
    return _function(schema.get_context_dependent_function_with_opset_version(version, proto, types), opset)


def complete_node(node: ir.Node, function: ir.Function, opset: int) -> None:
    """Write out defaults that the definition refers to by name: attributes and outputs."""
    for name, attribute in onnx.defs.get_schema(node.op_type, opset).attributes.items():
        if name not in node.attributes and attribute.default_value.type != onnx.AttributeProto.UNDEFINED:
            node.attributes[name] = ir.serde.deserialize_attribute(attribute.default_value)
    node.resize_outputs(len(function.outputs))
    for index, value in enumerate(node.outputs):
        value.name = value.name or f"{node.outputs[0].name}.unused.{index}"


def _newest(versions: Collection[int], opset: int) -> int | None:
    return max((version for version in versions if version <= opset), default=None)


def _function(serialized: bytes, opset: int) -> ir.Function | None:
    proto = onnx.FunctionProto()
    proto.ParseFromString(serialized)
    if not proto.node:
        return None
    made = {name for node in proto.node for name in node.output}
    # An optional output that this node lacks: a placeholder without readers.
    lacked = [name for name in proto.output if name not in made]
    proto.node.extend(onnx.helper.make_node("Constant", [], [name], value_float=0.0) for name in lacked)
    function: ir.Function = ir.serde.deserialize_function(proto)
    # The schema returns the newest definition valid at this opset, under the version of that definition.
    function.opset_imports[""] = opset
    for inner in function:
        inner.name = f"{function.name}/{inner.op_type}"  # for refusals
    return function
