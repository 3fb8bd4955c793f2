"""ONNX's own definitions of composite operators as functions of simpler ones, taken from the schemas."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import onnx
import onnx_ir as ir

# The type of a value; an empty one where it is not known or the value is absent.
TypeOf = Callable[[ir.Value | None], onnx.TypeProto]


def shared_definition(op: str, opset: int) -> ir.Function | None:
    """The definition that all nodes of the operator have in common; None where there is no such."""
    # onnx's type stubs lack the function accessors.
    schema: Any = onnx.defs.get_schema(op, opset)
    version = _newest(schema.function_opset_versions, opset)
    return None if version is None else _function(schema.get_function_with_opset_version(version), opset)


def own_definition(node: ir.Node, opset: int, type_of: TypeOf) -> ir.Function | None:
    """The definition of an op that depends on the node's attributes and input types."""
    schema: Any = onnx.defs.get_schema(node.op_type, opset)
    version = _newest(schema.context_dependent_function_opset_versions, opset)
    if version is None:
        return None
    types = [type_of(value).SerializeToString() for value in node.inputs]
    proto = ir.serde.serialize_node(node).SerializeToString()
    return _function(schema.get_context_dependent_function_with_opset_version(version, proto, types), opset)


def fit(node: ir.Node, function: ir.Function, opset: int) -> None:
    """Writes out what the node leaves to defaults: attributes and outputs to which the definition refers by name."""
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
    for name in proto.output:
        # An optional output that this node does not ask for; nothing will use the stand-in.
        if name not in made:
            proto.node.append(onnx.helper.make_node("Constant", [], [name], value_float=0.0))
    function: ir.Function = ir.serde.deserialize_function(proto)
    # The schema gives the newest definition that holds at this opset, under the version it was written for.
    function.opset_imports[""] = opset
    for inner in function:
        # A refusal has to lead back to the node that the user knows.
        inner.name = f"{function.name}/{inner.op_type}"
    return function
