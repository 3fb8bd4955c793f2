"""Rewrite a TFLite file into forms that tf2onnx converts right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from onnxport.exporters.tensorflow.sparse_weights import expand_sparse_weights

_IDENTIFIER = b"TFL3"
_BIAS = 2  # its place among the inputs of FULLY_CONNECTED


def write_convertible(path: Path, output: Path) -> Path:
    """Write a copy of a file in forms that tf2onnx converts right; return `path` itself where it has them already."""
    model: Any = schema.ModelT.InitFromObj(schema.Model.GetRootAs(path.read_bytes(), 0))
    changes = [rewrite(model, graph) for graph in model.subgraphs for rewrite in _REWRITES]
    if not any(changes):
        return path
    builder = flatbuffers.Builder(path.stat().st_size)
    builder.Finish(model.Pack(builder), _IDENTIFIER)
    output.write_bytes(builder.Output())
    return output


def flatten_products(model: Any, graph: Any) -> bool:
    """Reshape what FULLY_CONNECTED flattens itself; return whether it did so anywhere.

    tf2onnx reshapes it too, but then forgets the bias.
    """
    flattening = [each for each in graph.operators if _flattens_with_bias(model, graph, each)]
    for product in flattening:
        features = int(graph.tensors[product.inputs[1]].shape[1])
        rows = _add_flattened(graph, product.inputs[0], features)
        reshape = schema.OperatorT()
        reshape.opcodeIndex = _opcode_index(model, schema.BuiltinOperator.RESHAPE)
        reshape.inputs = [product.inputs[0], _add_constant(model, graph, np.array([-1, features], np.int32))]
        reshape.outputs = [rows]
        graph.operators.insert(graph.operators.index(product), reshape)
        product.inputs = [rows, *product.inputs[1:]]
    return bool(flattening)


def write_transposed_convolutions(model: Any, graph: Any) -> bool:
    """Replace MediaPipe's operator Convolution2DTransposeBias by built-in ones; return whether there was one."""
    found = [each for each in graph.operators if _custom_code(model, each) == _TRANSPOSED]
    for custom in found:
        image, weights, bias = custom.inputs
        (output,) = custom.outputs
        padding, *strides = np.asarray(custom.customOptions, np.uint8).view(np.int32)[:3]
        transposed, addition = schema.OperatorT(), schema.OperatorT()
        transposed.opcodeIndex = _opcode_index(model, schema.BuiltinOperator.TRANSPOSE_CONV)
        transposed.builtinOptionsType = schema.BuiltinOptions.TransposeConvOptions
        transposed.builtinOptions = options = schema.TransposeConvOptionsT()
        options.padding, (options.strideW, options.strideH) = _PADDINGS[int(padding)], map(int, strides)
        shape = _add_constant(model, graph, np.array(_shape(graph, output), np.int32))
        transposed.inputs, transposed.outputs = [shape, weights, image], [_add_alike(graph, output)]
        addition.opcodeIndex = _opcode_index(model, schema.BuiltinOperator.ADD)
        addition.builtinOptionsType = schema.BuiltinOptions.AddOptions
        addition.builtinOptions = schema.AddOptionsT()
        addition.inputs, addition.outputs = [*transposed.outputs, bias], [output]
        place = graph.operators.index(custom)
        graph.operators[place : place + 1] = [transposed, addition]
    return bool(found)


_TRANSPOSED = b"Convolution2DTransposeBias"
# Its options are a TfLiteTransposeConvParams: TfLitePadding, width and height of a stride, as int32.
_PADDINGS = {1: schema.Padding.SAME, 2: schema.Padding.VALID}
# Each changes a graph of a model in place and returns whether it did.
_REWRITES: tuple[Callable[[Any, Any], bool], ...] = (
    expand_sparse_weights,
    flatten_products,
    write_transposed_convolutions,
)


def _custom_code(model: Any, operator: Any) -> bytes:
    return model.operatorCodes[operator.opcodeIndex].customCode or b""


def _flattens_with_bias(model: Any, graph: Any, operator: Any) -> bool:
    code = model.operatorCodes[operator.opcodeIndex]
    # Old files have the first 127 codes in another field.
    if max(code.builtinCode, code.deprecatedBuiltinCode) != schema.BuiltinOperator.FULLY_CONNECTED:
        return False
    has_bias = len(operator.inputs) > _BIAS and operator.inputs[_BIAS] >= 0
    rank = len(_shape(graph, operator.inputs[0]))
    return has_bias and rank > 2 and not operator.builtinOptions.keepNumDims


def _shape(graph: Any, number: int) -> list[int]:
    shape = graph.tensors[number].shape
    return [] if shape is None else [int(size) for size in shape]


def _add_flattened(graph: Any, number: int, features: int) -> int:
    """Add a tensor of a tensor's numbers in rows, and return its number."""
    whole, added = graph.tensors[number], _add_alike(graph, number)
    rows = graph.tensors[added]
    rows.shape = [int(np.prod(whole.shape)) // features, features]
    if whole.shapeSignature is not None and -1 in whole.shapeSignature:
        rows.shapeSignature = [-1, features]
    return added


def _add_alike(graph: Any, number: int) -> int:
    """Add a tensor of another one's type, grid and sizes, and return its number."""
    given, added = graph.tensors[number], schema.TensorT()
    added.name = (
        f"added/{len(graph.tensors)}".encode()
    )  # names must differ, and two products may read one tensor
    added.type, added.quantization = given.type, given.quantization
    added.shape, added.shapeSignature = given.shape, given.shapeSignature
    graph.tensors.append(added)
    return len(graph.tensors) - 1


def _add_constant(model: Any, graph: Any, values: Any) -> int:
    """Add a constant of int32, and return its number."""
    buffer, tensor = schema.BufferT(), schema.TensorT()
    buffer.data = np.frombuffer(values.tobytes(), np.uint8)
    tensor.name = f"constant/{len(graph.tensors)}".encode()
    tensor.type, tensor.shape = schema.TensorType.INT32, list(values.shape)
    tensor.buffer = len(model.buffers)
    model.buffers.append(buffer)
    graph.tensors.append(tensor)
    return len(graph.tensors) - 1


def _opcode_index(model: Any, operator: int) -> int:
    """Return the index of an operator's first version in the model's table, added where it is not there."""
    for index, code in enumerate(model.operatorCodes):
        if max(code.builtinCode, code.deprecatedBuiltinCode) == operator:
            return index
    added = schema.OperatorCodeT()
    added.builtinCode = added.deprecatedBuiltinCode = operator
    model.operatorCodes.append(added)
    return len(model.operatorCodes) - 1
