"""What ONNX Runtime executes of the real models comes from nodes of theirs."""

from __future__ import annotations

from pathlib import Path

import onnxruntime
import pytest

from fixtures import models
from onnxport.formats.graph.onnx import read_onnx
from onnxport.profiling.origins import origins

pytestmark = [pytest.mark.real, pytest.mark.exhaustive]

KEYS = [key for key in sorted(models.keys()) if not key.endswith(".tflite")]
# The most nodes of a model about which nothing tells.
UNTOLD = 0.03


@pytest.mark.parametrize("key", KEYS)
def test_executed_nodes_are_traced(key: str, tmp_path: Path) -> None:
    model, optimized = models.path(key), tmp_path / "optimized.onnx"
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(optimized)
    options.log_severity_level = 4
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    executed = read_onnx(optimized)
    found = origins(executed, read_onnx(model))
    untold = [node.label for node in executed.walk() if not found[node]]
    assert len(untold) <= max(1, UNTOLD * len(found)), untold
