"""Weights that a TFLite file stores sparsely, as MediaPipe's detectors do: LiteRT expands them when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

from onnxport.exporters.tensorflow.tflite_files import write_convertible
from tests.validate.tflite_files import write

_PRODUCT = """
func.func @main(%x: tensor<2x8xf32> loc("x")) -> tensor<2x4xf32> {{
  %w = arith.constant dense<{weights}> : tensor<4x8xf32>
  %none = "tfl.no_value"() {{value}} : () -> none
  %y = "tfl.fully_connected"(%x, %w, %none)
    {{fused_activation_function = "NONE", keep_num_dims = false, weights_format = "DEFAULT"}}
    : (tensor<2x8xf32>, tensor<4x8xf32>, none) -> tensor<2x4xf32> loc("y")
  func.return %y : tensor<2x4xf32>
}}
"""


def answers(path: Path, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    interpreter = Interpreter(str(path))
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    return np.array(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))


def level(size: int) -> Any:
    made = schema.DimensionMetadataT()
    made.format, made.denseSize = schema.DimensionType.DENSE, size
    return made


def sparse_level(segments: list[int], indices: list[int]) -> Any:
    made = schema.DimensionMetadataT()
    made.format = schema.DimensionType.SPARSE_CSR
    made.arraySegmentsType, made.arraySegments = schema.SparseIndexVector.Uint16Vector, schema.Uint16VectorT()
    made.arrayIndicesType, made.arrayIndices = schema.SparseIndexVector.Uint8Vector, schema.Uint8VectorT()
    made.arraySegments.values = np.array(segments, np.uint16)
    made.arrayIndices.values = np.array(indices, np.uint8)
    return made


def compress(weights: np.ndarray[Any, Any], block: int) -> tuple[np.ndarray[Any, Any], Any]:
    """Return the numbers of 4 rows in blocks of columns that hold any, and their places."""
    blocks = weights.reshape(len(weights), -1, block)
    held = blocks.any(axis=-1)
    form = schema.SparsityParametersT()
    segments = [0, *np.cumsum(held.sum(axis=1)).tolist()]
    form.traversalOrder = np.arange(2 if block == 1 else 3, dtype=np.int32)
    form.blockMap = None if block == 1 else np.array([1], np.int32)
    form.dimMetadata = [level(len(weights)), sparse_level(segments, np.nonzero(held)[1].tolist())]
    form.dimMetadata += [] if block == 1 else [level(block)]
    return blocks[held].ravel(), form


def write_sparse(path: Path, weights: np.ndarray[Any, Any], block: int, output: Path) -> Path:
    """Write a copy of a file whose constant of 4 x 8 is the result of DENSIFY."""
    model: Any = schema.ModelT.InitFromObj(schema.Model.GetRootAs(path.read_bytes(), 0))
    graph = model.subgraphs[0]
    (number,) = (i for i, tensor in enumerate(graph.tensors) if list(tensor.shape) == [4, 8])
    buffer, tensor, code, operator = (
        schema.BufferT(),
        schema.TensorT(),
        schema.OperatorCodeT(),
        schema.OperatorT(),
    )
    numbers, tensor.sparsity = compress(weights, block)
    buffer.data = numbers.view(np.uint8)
    tensor.name, tensor.shape, tensor.type = b"sparse", graph.tensors[number].shape, schema.TensorType.FLOAT32
    tensor.buffer, graph.tensors[number].buffer = len(model.buffers), 0
    model.buffers.append(buffer)
    graph.tensors.append(tensor)
    code.builtinCode, code.deprecatedBuiltinCode, code.version = schema.BuiltinOperator.DENSIFY, 124, 1
    operator.opcodeIndex, operator.inputs, operator.outputs = (
        len(model.operatorCodes),
        [len(graph.tensors) - 1],
        [number],
    )
    model.operatorCodes.append(code)
    graph.operators.insert(0, operator)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    output.write_bytes(builder.Output())
    return output


@pytest.mark.parametrize("block", [1, 4])
def test_the_expanded_file_answers_as_litert_does(tmp_path: Path, block: int) -> None:
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((4, 8)).astype(np.float32)
    weights[0, :4] = weights[2] = 0  # a row without any number among them
    weights[3, 5] = 0
    text = _PRODUCT.format(weights=weights.tolist())
    dense = write(tmp_path / "dense.tflite", text, ["x"], ["y"])
    sparse = write_sparse(dense, weights, block, tmp_path / "sparse.tflite")
    x = rng.standard_normal((2, 8)).astype(np.float32)
    expanded = write_convertible(sparse, tmp_path / "expanded.tflite")
    assert expanded != sparse
    np.testing.assert_allclose(answers(expanded, x), answers(sparse, x), rtol=1e-6)
    np.testing.assert_allclose(answers(expanded, x), x @ weights.T, rtol=1e-5)


def test_a_file_without_sparse_weights_is_left_alone(tmp_path: Path) -> None:
    text = _PRODUCT.format(weights=np.ones((4, 8), np.float32).tolist())
    dense = write(tmp_path / "dense.tflite", text, ["x"], ["y"])
    assert write_convertible(dense, tmp_path / "other.tflite") == dense
