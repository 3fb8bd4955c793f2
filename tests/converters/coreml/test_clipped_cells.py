"""The bound that `clip` puts on the sums of recurrent cells, 0 among them, which ONNX Runtime takes for RNN only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper

from tests.converters.coreml.packages import convert, evaluate
from tests.converters.tflite.models import model_of, run_onnx

# Operator -> how many gates it has.
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@pytest.mark.parametrize(("op", "clip"), [("RNN", 0.0), ("RNN", 0.1), ("GRU", 0.1), ("LSTM", 0.1)])
def test_sums_are_clipped(tmp_path: Path, op: str, clip: float) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(3, 2, 4)).astype(np.float32)
    weights = [random.normal(size=(1, GATES[op] * 5, size)).astype(np.float32) for size in (4, 5)]
    constants = [numpy_helper.from_array(each, name) for name, each in zip("wr", weights, strict=True)]
    model = model_of(
        [helper.make_node(op, ["x", "w", "r"], ["y"], hidden_size=5, clip=clip)], {"x": x}, constants
    )
    convert(model, tmp_path / "m.mlpackage")
    answer, expected = evaluate(tmp_path / "m.mlpackage", {"x": x})["y"], run_onnx(model, {"x": x})["y"]
    np.testing.assert_allclose(answer, expected, atol=1e-6)
