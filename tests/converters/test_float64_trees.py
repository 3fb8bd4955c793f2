"""Trees with float64 features, as LightGBM's and scikit-learn's exporters write them: float32 decides as they do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxport
from onnxport.core.errors import NotProvenError
from onnxport.optimizers.rewrites.ml import trees

TREES, FEATURES = 600, 4


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A forest of stumps: every threshold is compared in every row."""
    random = np.random.default_rng(0)

    def stored(values: np.ndarray[tuple[int], np.dtype[np.float64 | np.uint8]]) -> onnx.TensorProto:
        return numpy_helper.from_array(values)

    rows = list(range(TREES))
    node = helper.make_node(
        "TreeEnsemble",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        aggregate_function=1,
        n_targets=1,
        tree_roots=rows,
        nodes_splits=stored(random.standard_normal(TREES)),
        nodes_featureids=random.integers(0, FEATURES, TREES).tolist(),
        nodes_modes=stored(random.integers(0, 4, TREES).astype(np.uint8)),
        nodes_truenodeids=[2 * row for row in rows],
        nodes_trueleafs=[1] * TREES,
        nodes_falsenodeids=[2 * row + 1 for row in rows],
        nodes_falseleafs=[1] * TREES,
        leaf_targetids=[0] * (2 * TREES),
        leaf_weights=stored(random.standard_normal(2 * TREES)),
    )
    graph = helper.make_graph(
        [node],
        "forest",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, ["N", FEATURES])],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, ["N", 1])],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 5)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "forest.onnx")
    return tmp_path / "forest.onnx"


@pytest.mark.parametrize("target", ["tflite", "coreml"])
def test_they_are_proven_for_float32_features(model: Path, target: str) -> None:
    made = onnxport.convert_model(model, target)
    assert made.report.verdict == "proven"
    assert any("exact for features that are float32" in note for note in made.run.artifacts[0].notes)
    fed = {each.label for each in made.report.fed}
    exact = {each.label for each in onnxport.convert_model(model, "ort").report.fed}
    assert fed < exact  # ONNX Runtime's format is judged by features of all bits, too


def test_thresholds_rounded_to_the_nearest_are_found(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "_round_thresholds", lambda forest: np.asarray(forest.thresholds, np.float32))
    with pytest.raises(NotProvenError, match="not equivalent"):
        onnxport.convert_model(model, "tflite")


def test_half_precision_leaves_trees_as_they_are(model: Path) -> None:
    made = onnxport.convert_model(model, "tflite", precision="fp16")
    assert made.report.verdict == "proven"
    assert any("of decision trees" in note for note in made.run.artifacts[0].notes)
