"""A newer node checked against an older schema: attributes with default values are dropped, other news is
refused."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir

from onnxport.optimizers.opset.downgrades.arithmetic import WIDER
from onnxport.optimizers.opset.node import Node, NoForm
from onnxport.optimizers.opset.schemas import type_name

_SINGLE = onnx.defs.OpSchema.FormalParameterOption.Single


def convert_to_older(node: Node, newer: onnx.defs.OpSchema, older: onnx.defs.OpSchema) -> None:
    """Convert a node of the form `newer` to `older`.

    Raises:
        NoForm: it has an attribute, an input, an output or a type that came with `newer`; the node is as it was.
    """
    new_attributes = [name for name in node.ir.attributes if name not in older.attributes]
    for name in new_attributes:
        value, formal = node.attribute(name), newer.attributes.get(name)
        default = None
        if formal is not None and formal.default_value.name:
            default = ir.serde.deserialize_attribute(formal.default_value).value
        if value != default:
            shown = value if isinstance(value, int | float | str) else list(value)
            raise NoForm(f"its {name}={shown} came with opset {newer.since_version}")
    node.trim()
    if len(node.ir.inputs) > older.max_input:
        name = newer.inputs[older.max_input].name
        raise NoForm(f"its input {name!r} came with opset {newer.since_version}")
    for index, parameter in enumerate(older.inputs):
        if parameter.option == _SINGLE and node.input(index) is None:
            raise NoForm(f"its input {parameter.name!r} may be absent since opset {newer.since_version} only")
    for index in range(older.max_output, len(node.ir.outputs)):
        if node.uses_output(index):
            raise NoForm(f"its output {newer.outputs[index].name!r} came with opset {newer.since_version}")
    _widen(node, newer, older)
    node.drop_outputs(min(older.max_output, len(node.ir.outputs)))
    for name in new_attributes:
        node.take(name)


def _widen(node: Node, newer: onnx.defs.OpSchema, older: onnx.defs.OpSchema) -> None:
    """Compute in a wider type where the older form does not take the node's types (WIDER)."""
    table = WIDER.get((newer.name, newer.since_version), {})
    casts: dict[int, ir.DataType] = {}
    names: dict[str, tuple[ir.DataType, ir.DataType]] = {}  # type parameter: from and to
    for index, value in enumerate(node.ir.inputs):
        parameter = _parameter(older.inputs, index)
        found = None if value is None else node.type(value)
        if found is None or type_name(found) in parameter.types:
            continue
        wider = table.get(found.dtype) if isinstance(found, ir.TensorType) else None
        if wider is None:
            raise NoForm(
                f"opset {newer.since_version - 1} does not take {type_name(found)} for its {parameter.name!r}"
            )
        casts[index] = wider
        names[parameter.type_str] = (found.dtype, wider)
    for index, value in enumerate(node.ir.outputs):
        parameter = _parameter(older.outputs, index)
        found = node.type(value)
        if parameter.type_str not in names and found is not None and type_name(found) not in parameter.types:
            raise NoForm(f"opset {newer.since_version - 1} does not give {type_name(found)}")
    for index, wider in casts.items():
        node.put_input(index, node.before("Cast", node.ir.inputs[index], to=int(wider)))
    for index in range(len(node.ir.outputs)):
        if pair := names.get(_parameter(older.outputs, index).type_str):
            node.after(index, "Cast", to=int(pair[0]))
            node.ir.outputs[index].type = ir.TensorType(pair[1])


def _parameter(parameters: Any, index: int) -> Any:
    """Return the schema's input or output at `index`; a variadic one, the last, covers all that follow."""
    return parameters[min(index, len(parameters) - 1)]
