"""Inputs of size 0: the cache of a decoder at its first step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxport
from onnxport.core.errors import CannotConvertError

SHAPE = ["x=1,3,8", "past=1,0,8"]


@pytest.fixture
def decoder(tmp_path: Path) -> Path:
    """Attention over a cache `past`, to which the keys of `x` are appended."""
    nodes = [
        helper.make_node("MatMul", ["x", "wk"], ["keys"]),
        helper.make_node("Concat", ["past", "keys"], ["present"], axis=1),
        helper.make_node("MatMul", ["x", "wq"], ["queries"]),
        helper.make_node("Transpose", ["present"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["queries", "turned"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["shares"], axis=-1),
        helper.make_node("MatMul", ["shares", "present"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", length, 8])
        for name, length in (("x", "T"), ("past", "P"), ("y", "T"), ("present", "Q"))
    ]
    random = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(random.standard_normal((8, 8)).astype(np.float32), n) for n in ("wk", "wq")
    ]
    graph = helper.make_graph(nodes, "decoder", ends[:2], ends[2:], weights)
    path = tmp_path / "decoder.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("target", ["tflite", "ort"])
def test_the_first_step_of_a_decoder_converts_with_an_empty_cache(decoder: Path, target: str) -> None:
    made = onnxport.convert_model(decoder, target, decoder.with_suffix(f".{target}"), shape=SHAPE)
    assert made.report.verdict == "proven"
    with onnxport.load(made.path) as model:
        y = model.run({"x": np.ones((1, 3, 8), np.float32), "past": np.zeros((1, 0, 8), np.float32)})
    assert {name: array.shape for name, array in y.items()} == {"y": (1, 3, 8), "present": (1, 3, 8)}


def test_core_ml_has_no_empty_inputs_and_says_so(decoder: Path) -> None:
    with pytest.raises(CannotConvertError, match="Core ML has no empty tensors"):
        onnxport.convert_model(decoder, "coreml", decoder.with_suffix(".mlpackage"), shape=SHAPE)
