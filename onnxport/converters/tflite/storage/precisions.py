"""Whether the precision that a user asks for is one that can be made of the model."""

from __future__ import annotations

import onnx_ir as ir

from onnxport.converters.params import Precision
from onnxport.errors import UsageError
from onnxport.model import Model

# Precisions whose activations are integers, by the types in which a model quantizes them.
_OF_TYPE: dict[ir.DataType, Precision] = {
    ir.DataType.INT8: "int8",
    ir.DataType.UINT8: "int8",
    ir.DataType.INT16: "int16x8",
    ir.DataType.UINT16: "int16x8",
}


def check_precision(model: Model, precision: Precision | None) -> None:
    """Refuses to call an artefact what it is not (UsageError): scales of activations are kept, never made or undone.

    Args:
        model: prepared, so that QLinear operators have become pairs of QuantizeLinear and DequantizeLinear.
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
        raise UsageError(
            f"--precision {precision} keeps the scales of a quantized model: {found}",
            fix="give a model that is quantized so, or "
            + ("leave --precision out" if has else "--precision int8-dynamic, which needs no scales"),
        )
    if has and precision not in has:
        raise UsageError(
            f"the model computes in {' and '.join(sorted(has))} with scales of its own, which --precision {precision} "
            "does not undo",
            fix="leave --precision out, or give the float model",
        )


def _of_activations(model: Model) -> set[Precision]:
    found = set[Precision]()
    for node in model.graph.all_nodes():
        if node.op_type != "QuantizeLinear" or len(node.inputs) < 2:
            continue
        value, scale, kind = node.inputs[0], node.inputs[1], node.outputs[0].dtype
        computed = value is not None and value.const_value is None
        if computed and scale is not None and scale.const_value is not None and kind in _OF_TYPE:
            found.add(_OF_TYPE[kind])
    return found
