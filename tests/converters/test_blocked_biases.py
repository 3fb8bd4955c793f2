"""A bias whose scales hold for blocks of it, as OpenCV's block quantization writes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnxport


def save(path: Path, size: int, block: int) -> Path:
    rng = np.random.default_rng(2)
    blocks = -(-size // block)
    constants = {
        "w": rng.standard_normal((4, size)).astype(np.float32),
        "q": rng.integers(-128, 128, size).astype(np.int8),
        "s": rng.uniform(0.01, 0.1, blocks).astype(np.float32),
        "z": rng.integers(-9, 9, blocks).astype(np.int8),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["b"], axis=0, block_size=block),
        helper.make_node("Gemm", ["x", "w", "b"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 1, [2, 4])],
        [helper.make_tensor_value_info("y", 1, [2, size])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


@pytest.mark.parametrize("target", ["tflite", "coreml", "ort"])
@pytest.mark.parametrize(("size", "block"), [(6, 2), (7, 4), (6, 6)])
def test_the_scale_of_its_block_counts(target: str, size: int, block: int, tmp_path: Path) -> None:
    source = save(tmp_path / "model.onnx", size, block)
    report = onnxport.convert_model(source, target, tmp_path).report
    assert report.verdict == "proven", report.reason
