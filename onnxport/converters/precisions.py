"""Checks a requested precision against the model's own, for every target."""

from __future__ import annotations

import onnx_ir as ir

from onnxport.converters.params import AnyPrecision, QuantizedPrecision
from onnxport.core.errors import UsageError
from onnxport.formats.model import Model

# Type of quantized activations -> precision. Floats of 8 bits are no precision of ours.
_PRECISIONS: dict[ir.DataType, QuantizedPrecision] = {
    ir.DataType.INT8: "int8",
    ir.DataType.UINT8: "int8",
    ir.DataType.INT16: "int16x8",
    ir.DataType.UINT16: "int16x8",
}
# Prefix of operators on quantized values, which an unprepared model may have.
_QUANTIZED = "QLinear"


def check_precision(model: Model, precision: AnyPrecision | None, without: str = "") -> None:
    """Refuse a precision that would add or drop the model's scales of activations (UsageError).

    Args:
        model: prepared or not.
        without: a precision of the target that needs no scales; empty if there is none.
    """
    if precision is None:
        return
    own = _activation_precisions(model)
    if precision in _PRECISIONS.values() and precision not in own:
        if own:
            raise UsageError(
                f"--precision {precision} keeps the scales of a quantized model",
                why="this one's activations are quantized to other types",
                fix="give a model of that precision, or leave --precision out",
            )
        other = f", or --precision {without}, which needs none" if without else ""
        raise UsageError(
            f"--precision {precision} needs samples",
            why="the model has no integer scales for its activations",
            fix=f"give --calib DIR{other}",
        )
    if own and precision not in own:
        raise UsageError(
            f"the model is quantized to {' and '.join(sorted(own))}, and --precision {precision} cannot undo that",
            fix="leave --precision out, or give the float model",
        )


def _activation_precisions(model: Model) -> set[QuantizedPrecision]:
    found = set[QuantizedPrecision]()
    for node in model.graph.all_nodes():
        if node.op_type.startswith(_QUANTIZED):
            kinds = [value.dtype for value in node.inputs if value is not None and value.dtype is not None]
            if not any(kind.name.startswith("FLOAT8") for kind in kinds):
                found.add("int8")
        elif node.op_type == "QuantizeLinear" and len(node.inputs) > 1:
            value, scale = node.inputs[0], node.inputs[1]
            computed = value is not None and value.const_value is None
            kind = _quantized_type(node)
            if computed and scale is not None and scale.const_value is not None and kind in _PRECISIONS:
                found.add(_PRECISIONS[kind])
    return found


def _quantized_type(node: ir.Node) -> ir.DataType | None:
    """Return the type of a QuantizeLinear's result, which a file need not declare (ONNX QuantizeLinear-21)."""
    if node.outputs[0].dtype is not None:
        return node.outputs[0].dtype
    zero_point = node.inputs[2] if len(node.inputs) > 2 else None
    if zero_point is not None:
        return zero_point.dtype
    declared = node.attributes.get("output_dtype")
    return ir.DataType(declared.as_int()) if declared is not None and declared.as_int() else ir.DataType.UINT8
