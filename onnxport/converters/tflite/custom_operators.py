"""Operators of unknown domains, kept as custom operators for a runtime that knows them: --allow-custom-ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir
from flatbuffers import flexbuffers
from litert_converter.mlir import ir

from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.optimizers.node_marks import KNOWN_DOMAINS

UNKNOWN_DOMAIN = (
    "is of an unknown domain; --operators FILE defines it in ONNX's operators, --allow-custom-ops keeps it as a custom "
    "operator, unproven"
)


def is_custom(node: onnx_ir.Node) -> bool:
    return node.domain not in KNOWN_DOMAINS


def lower_custom(node: TflNode, tfl: TflBuilder) -> None:
    """Emit tfl.custom of the operator's name: tensors in ONNX's order of axes, attributes as a flexbuffer map."""
    absent = [i for i, value in enumerate(node.node.inputs) if value is None]
    if absent:
        node.unsupported(f"leaves out its input {absent[0]}, which a custom operator cannot")
    if any(value.shape is None or value.dtype is None for value in node.node.outputs):
        node.unsupported("its results' types cannot be inferred; declare them in the model's value_info")
    operands = [tfl.tensor(operand) for operand in node.rest()]
    options = {name: _option(node, name) for name in sorted(node.node.attributes)}
    stored = bytes(flexbuffers.Dumps(options)) if options else b""
    count = node.output_count
    types = [tfl.tensor_type(node.output_shape(i), node.output_dtype(i)) for i in range(count)]
    operation = ir.Operation.create(
        "tfl.custom",
        results=types,
        operands=operands,
        attributes={
            "custom_code": ir.StringAttr.get(node.node.op_type),
            "custom_option": ir.Attribute.parse(f'#tfl<const_bytes : "0x{stored.hex().upper()}">'),
        },
    )
    for index in range(count):
        node.emit(tfl.value(operation.results[index]), index)


def _option(node: TflNode, name: str) -> Any:
    """Convert an attribute to what a flexbuffer holds: numbers, text, and lists of them."""
    value = node.attribute(name)
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple) and all(isinstance(each, int | float | str) for each in value):
        return list(value)
    if not isinstance(value, int | float | str):
        node.unsupported(f"its attribute {name!r} is a graph or another value that TFLite cannot hold")
    return value
