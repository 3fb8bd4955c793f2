"""Recurrent layers of open length of which only the last state is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnxport


@pytest.mark.parametrize(("op", "gates", "direction"), [("GRU", 3, "bidirectional"), ("LSTM", 4, "reverse")])
def test_the_number_of_steps_is_known_outside_the_loop(
    tmp_path: Path, op: str, gates: int, direction: str
) -> None:
    random, ways = np.random.default_rng(0), 2 if direction == "bidirectional" else 1
    weights = [random.normal(0, 0.3, size=(ways, gates * 5, size)).astype(np.float32) for size in (4, 5)]
    graph = helper.make_graph(
        [
            helper.make_node(op, ["x", "w", "r"], ["", "last"], hidden_size=5, direction=direction),
            helper.make_node("Tanh", ["last"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["T", 2, 4])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [ways, 2, 5])],
        [numpy_helper.from_array(each, name) for name, each in zip("wr", weights, strict=True)],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    assert onnxport.convert_model(tmp_path / "m.onnx", "coreml").report.verdict == "proven"
