"""One sample of a user's is enough for a proof, also of outputs that one sample leaves constant."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxport

CLASSIFIER = """g (float[1, 16] x) => (int64[1] label, float[1] score) <float[16, 4] w>
    { z = MatMul (x, w) label = ArgMax <axis = 1, keepdims = 0> (z)
      score = ReduceMax <axes = [1], keepdims = 0> (z) }"""


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> {CLASSIFIER}')
    weights = np.random.default_rng(3).standard_normal((16, 4)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(model, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_an_arg_max_is_proven_by_one_sample(classifier: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", x=np.random.default_rng(5).standard_normal((1, 16)).astype(np.float32))
    report = onnxport.validate_model(classifier, classifier, inputs=tmp_path / "one.npz")
    assert report.verdict == "proven"


def test_a_sample_of_one_number_everywhere_does_not_prove(classifier: Path, tmp_path: Path) -> None:
    """Its neighbours stay between its least and its largest value: nothing moves."""
    np.savez(tmp_path / "one.npz", x=np.zeros((1, 16), np.float32))
    report = onnxport.validate_model(classifier, classifier, inputs=tmp_path / "one.npz")
    assert report.verdict == "inconclusive"
