"""The precision that a converter takes a quantized model for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxport.converters.precisions import check_precision
from onnxport.core.errors import UsageError
from onnxport.formats.model import Model


def quantized_product(folder: Path, kind: int) -> Model:
    """A QLinearMatMul (ONNX opset 21) of a type of 8 bits."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    zero = helper.make_tensor("zero", kind, [], np.zeros(1, dtype).tobytes(), raw=True)
    scale = helper.make_tensor("scale", TensorProto.FLOAT, [], [0.5])
    weights = helper.make_tensor("b", kind, [4, 2], np.ones((4, 2), dtype).tobytes(), raw=True)
    operands = ["a", "scale", "zero", "b", "scale", "zero", "scale", "zero"]
    graph = helper.make_graph(
        [helper.make_node("QLinearMatMul", operands, ["y"], "product")],
        "graph",
        [helper.make_tensor_value_info("a", kind, [3, 4])],
        [helper.make_tensor_value_info("y", kind, [3, 2])],
        [zero, scale, weights],
    )
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), path)
    return Model.load(path)


def test_integers_of_eight_bits_are_int8(tmp_path: Path) -> None:
    model = quantized_product(tmp_path, TensorProto.INT8)
    check_precision(model, "int8")
    with pytest.raises(UsageError, match="is quantized to int8"):
        check_precision(model, "fp16")


@pytest.mark.parametrize("kind", [TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2])
def test_floats_of_eight_bits_are_not_int8(kind: int, tmp_path: Path) -> None:
    model = quantized_product(tmp_path, kind)
    check_precision(model, "fp16")
    with pytest.raises(UsageError, match="--precision int8 needs samples"):
        check_precision(model, "int8")


def test_a_zero_point_tells_the_type_that_the_file_does_not_declare(tmp_path: Path) -> None:
    """ONNX QuantizeLinear-21: the result has the zero point's type."""
    zero = helper.make_tensor("zero", TensorProto.INT16, [], [0])
    scale = helper.make_tensor("scale", TensorProto.FLOAT, [], [0.5])
    graph = helper.make_graph(
        [
            helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
            helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
        ],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])],
        [zero, scale],
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), path)
    model = Model.load(path)
    check_precision(model, "int16x8")
    with pytest.raises(UsageError, match="quantized to int16x8"):
        check_precision(model, "fp16")
