"""Compute a float16 model in float32: quantization rounds once, and its integer kernels have float32 at their ends."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from onnxport.formats.model import Model

_NARROW, _WIDE = ir.DataType.FLOAT16, ir.DataType.FLOAT
# Attributes that name the type of a result.
_TYPES = ("to", "dtype", "output_dtype")


def is_narrow(model: Model) -> bool:
    """Return whether products of a model multiply float16."""
    return any(
        node.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul")
        and any(value is not None and value.dtype == _NARROW for value in (*node.inputs, *node.outputs))
        for node in model.graph.all_nodes()
    )


def widen(model: Model) -> None:
    """Make all float16 of a model float32, in place; its inputs and outputs keep their types, behind Casts."""
    graph = model.graph
    narrow = [value for value in graph.outputs if value.dtype == _NARROW]
    inputs = [
        value for value in graph.inputs if value.dtype == _NARROW and value.name not in graph.initializers
    ]
    for each in (graph, *graph.subgraphs()):
        _widen_constants(each)
        if each is not graph:
            _widen_values(each.inputs)
    for node in graph.all_nodes():
        _widen_attributes(node)
        _widen_values(node.outputs)
    for value in inputs:
        _cast_input(graph, value)
    for place, value in enumerate(graph.outputs):
        if value in narrow:
            _cast_output(graph, place, value)


def _widen_values(values: Iterable[ir.Value]) -> None:
    for value in values:
        if value.dtype == _NARROW:
            value.type = ir.TensorType(_WIDE)  # types are shared with other copies


def _cast_input(graph: ir.Graph, value: ir.Value) -> None:
    cast = ir.node("Cast", [value], {"to": int(_WIDE)})
    wide = cast.outputs[0]
    cast.name = wide.name = f"{value.name}/float32"
    wide.type, wide.shape = ir.TensorType(_WIDE), value.shape
    value.replace_all_uses_with(wide)
    cast.replace_input_with(0, value)
    graph.insert_before(graph[0], cast)


def _cast_output(graph: ir.Graph, place: int, value: ir.Value) -> None:
    cast = ir.node("Cast", [value], {"to": int(_NARROW)})
    narrow = cast.outputs[0]
    narrow.name, value.name = value.name, f"{value.name}/float32"
    cast.name = f"{narrow.name}/float16"
    narrow.type, narrow.shape = ir.TensorType(_NARROW), value.shape
    graph.append(cast)
    graph.outputs[place] = narrow


def _widen_constants(graph: ir.Graph) -> None:
    for value in graph.initializers.values():
        tensor = value.const_value
        if tensor is not None and tensor.dtype == _NARROW:
            value.const_value = _wide(tensor)
            value.type = ir.TensorType(_WIDE)


def _wide(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    return ir.Tensor(tensor.numpy().astype(np.float32), name=tensor.name)


def _widen_attributes(node: ir.Node) -> None:
    for name, attribute in list(node.attributes.items()):
        if not isinstance(attribute, ir.Attr):
            continue
        if name in _TYPES and attribute.type == ir.AttributeType.INT and attribute.value == int(_NARROW):
            node.attributes[name] = ir.AttrInt64(name, int(_WIDE))
        elif attribute.type == ir.AttributeType.TENSOR and attribute.value.dtype == _NARROW:
            node.attributes[name] = ir.AttrTensor(name, _wide(attribute.value))
