"""Whether the precision that a user asks for is one that a converter can make of the model, whatever the target."""

from __future__ import annotations

import onnx_ir as ir

from onnxport.converters.params import AnyPrecision, QuantizedPrecision
from onnxport.core.errors import UsageError
from onnxport.formats.model import Model

# Precisions whose activations are integers, by the types in which a model quantizes them.
_OF_TYPE: dict[ir.DataType, QuantizedPrecision] = {
    ir.DataType.INT8: "int8",
    ir.DataType.UINT8: "int8",
    ir.DataType.INT16: "int16x8",
    ir.DataType.UINT16: "int16x8",
}
# Of an operator on quantized values, where the model is not prepared.
_QUANTIZED = "QLinear"
_FIND_THEM = "samples on which onnxport finds them: --calib DIR"


def check_precision(model: Model, precision: AnyPrecision | None, without: str = "") -> None:
    """Refuses to call an artefact what it is not (UsageError): scales of activations are kept, never made or undone.

    Args:
        model: prepared or not.
        without: a precision of the target that needs no scales; empty where there is none.
    """
    if precision is None:
        return
    has = _of_activations(model)
    if precision in _OF_TYPE.values() and precision not in has:
        found = (
            "this one's activations are quantized to other types"
            if has
            else "this one has no scales for its activations"
        )
        way_out = "leave --precision out" if has else _FIND_THEM
        if without and not has:
            way_out += f", or --precision {without}, which needs none"
        raise UsageError(
            f"--precision {precision} keeps the scales of a quantized model: {found}",
            fix=f"give a model that is quantized so, or {way_out}",
        )
    if has and precision not in has:
        raise UsageError(
            f"the model computes in {' and '.join(sorted(has))} with scales of its own, which --precision {precision} "
            "does not undo",
            fix="leave --precision out, or give the float model",
        )


def _of_activations(model: Model) -> set[QuantizedPrecision]:
    found = set[QuantizedPrecision]()
    for node in model.graph.all_nodes():
        if node.op_type.startswith(_QUANTIZED):
            found.add("int8")
        elif node.op_type == "QuantizeLinear" and len(node.inputs) > 1:
            value, scale = node.inputs[0], node.inputs[1]
            computed = value is not None and value.const_value is None
            kind = _quantized_to(node)
            if computed and scale is not None and scale.const_value is not None and kind in _OF_TYPE:
                found.add(_OF_TYPE[kind])
    return found


def _quantized_to(node: ir.Node) -> ir.DataType | None:
    """The type of a QuantizeLinear's result, which a file need not declare (ONNX QuantizeLinear-21)."""
    if node.outputs[0].dtype is not None:
        return node.outputs[0].dtype
    zero_point = node.inputs[2] if len(node.inputs) > 2 else None
    if zero_point is not None:
        return zero_point.dtype
    asked = node.attributes.get("output_dtype")
    return ir.DataType(asked.as_int()) if asked is not None and asked.as_int() else ir.DataType.UINT8
