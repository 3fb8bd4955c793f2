"""A model that computes in float16: int8 has float32 at its ends, so its float32 form is quantized."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import onnxport
from onnxport.formats.model import Model
from onnxport.optimizers.float16.float32_form import is_narrow, widen
from tests.quantize.small import sqnr

RNG = np.random.default_rng(3)


def halves(path: Path) -> Path:
    """float16 in, out and in between; a Cast in front of the second product, as converters to float16 leave them."""
    constants = {
        "w": RNG.standard_normal((8, 3, 3, 3)).astype(np.float16),
        "v": (0.2 * RNG.standard_normal((8, 5))).astype(np.float16),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Cast", ["r"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["f"], ["m"], axes=[2, 3], keepdims=0),
        helper.make_node("Cast", ["m"], ["h"], to=TensorProto.FLOAT16),
        helper.make_node("MatMul", ["h", "v"], ["y"], name="product"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, ["n", 5])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def samples(folder: Path) -> Path:
    folder.mkdir()
    for number in range(8):
        np.savez(folder / f"{number}.npz", x=RNG.standard_normal((1, 3, 8, 8)).astype(np.float16))
    return folder


def test_its_float32_form_is_quantized(tmp_path: Path) -> None:
    source = halves(tmp_path / "half.onnx")
    result = onnxport.quantize_model(
        source, "int8", tmp_path / "int8.onnx", calib=samples(tmp_path / "calib")
    )
    assert "the model computes in float16: its float32 form was quantized" in result.run.artifacts[0].notes
    operators = [node.op_type for node in onnx.load(result.path).graph.node]
    assert operators.count("QuantizeLinear") >= 2
    own, quantized = (onnxruntime.InferenceSession(path) for path in (source, result.path))
    assert quantized.get_inputs()[0].type == own.get_inputs()[0].type == "tensor(float16)"
    assert quantized.get_outputs()[0].type == "tensor(float16)"
    feeds = {"x": RNG.standard_normal((2, 3, 8, 8)).astype(np.float16)}
    assert sqnr(source, result.path, (feeds,)) > 20


def test_widening_changes_no_other_copy_of_the_model(tmp_path: Path) -> None:
    model = Model.load(halves(tmp_path / "half.onnx"))
    before = model.to_bytes()
    copy = model.clone()
    widen(copy)
    assert model.to_bytes() == before
    assert is_narrow(model)
    assert not is_narrow(copy)
    assert [spec.dtype for spec in (*copy.inputs, *copy.outputs)] == ["float16", "float16"]
