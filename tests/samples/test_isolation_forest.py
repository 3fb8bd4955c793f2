"""Isolation forests as skl2onnx writes them: an ensemble per tree behind a Gather, whose leaves are looked up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
from skl2onnx import to_onnx
from sklearn.ensemble import IsolationForest

import onnxport
from onnxport.formats.model import Model
from onnxport.samples.domain import domains
from onnxport.validate.noise_runs import perturb_terms


def _tree(
    taken: str, given: str, feature: int, threshold: float, leaves: tuple[float, float]
) -> onnx.NodeProto:
    return helper.make_node(
        "TreeEnsembleRegressor",
        [taken],
        [given],
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2],
        nodes_featureids=[feature, 0, 0],
        nodes_values=[threshold, 0.0, 0.0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0],
        target_treeids=[0, 0],
        target_nodeids=[1, 2],
        target_ids=[0, 0],
        target_weights=list(leaves),
    )


def _forest(path: Path, leaves: tuple[float, float] = (1.0, 2.0)) -> Path:
    """Two trees over columns 2 and 0 of three; the output declares no shape."""
    nodes = [
        helper.make_node("Gather", ["x", "columns"], ["chosen"], axis=1),
        _tree("chosen", "first", 0, 5.0, leaves),
        _tree("chosen", "second", 1, -7.0, leaves),
        helper.make_node("Add", ["first", "second"], ["y"]),
    ]
    given = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph(
        nodes,
        "forest",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 3])],
        [given],
        [numpy_helper.from_array(np.array([2, 0]), "columns")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def test_an_output_without_a_shape_gets_the_inferred_one(tmp_path: Path) -> None:
    (output,) = Model.load(_forest(tmp_path / "forest.onnx")).outputs
    assert len(output.shape) == 2


def test_columns_behind_gather_have_the_thresholds_of_all_trees(tmp_path: Path) -> None:
    domain = domains(Model.load(_forest(tmp_path / "forest.onnx")))["x"]
    assert [column.levels for column in domain.columns] == [(-7.0,), (), (5.0,)]


def test_whole_numbers_of_leaves_stay_since_float32_adds_them_exactly(tmp_path: Path) -> None:
    for leaves, is_moved in (((1.0, 2.0), False), ((0.3, 0.7), True)):
        moved = perturb_terms(Model.load(_forest(tmp_path / "forest.onnx", leaves)))
        assert moved is not None
        weights = next(
            node.attributes["target_weights"].as_floats()
            for node in moved.graph
            if node.domain == "ai.onnx.ml"
        )
        assert (tuple(np.float32(weights)) != tuple(np.float32(leaves))) == is_moved


def test_scores_that_cancel_to_little_are_proven(tmp_path: Path) -> None:
    """0.5 less the power of a mean depth: the difference has the rounding of 0.5, and may be a hundredth of it."""
    x = np.random.default_rng(5).standard_normal((250, 6)).astype(np.float32)
    path = tmp_path / "forest.onnx"
    opsets = {"": 18, "ai.onnx.ml": 3}
    made = to_onnx(IsolationForest(n_estimators=20, random_state=6).fit(x), x[:1], target_opset=opsets)
    path.write_bytes(made.SerializeToString())
    report = onnxport.convert_model(
        path, to="tflite", output=tmp_path / "forest.tflite", latency=False
    ).report
    assert report.verdict == "proven", report.reason
