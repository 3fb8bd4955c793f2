"""Tree ensembles are fed around their thresholds, as a table whose values are compared as they come."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from onnxport.formats.model import Model
from onnxport.samples.columns import Column
from onnxport.samples.domain import domains
from onnxport.samples.sizes import OpenSizes


def _stump(features: list[int], thresholds: list[float], **attributes: Any) -> onnx.NodeProto:
    """One tree of a root and its two leaves for each feature."""
    count = len(features)
    ids = [node for _ in features for node in (0, 1, 2)]
    trees = [tree for tree in range(count) for _ in range(3)]
    return helper.make_node(
        "TreeEnsembleRegressor",
        ["table"],
        ["y"],
        domain="ai.onnx.ml",
        nodes_treeids=trees,
        nodes_nodeids=ids,
        nodes_featureids=[each for feature in features for each in (feature, 0, 0)],
        nodes_values=[each for threshold in thresholds for each in (threshold, 0.0, 0.0)],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"] * count,
        nodes_truenodeids=[1, 0, 0] * count,
        nodes_falsenodeids=[2, 0, 0] * count,
        target_treeids=[tree for tree in range(count) for _ in range(2)],
        target_nodeids=[1, 2] * count,
        target_ids=[0, 0] * count,
        target_weights=[1.0, -1.0] * count,
        n_targets=1,
        **attributes,
    )


def _model(nodes: list[onnx.NodeProto], columns: dict[str, int], dtype: int = TensorProto.FLOAT) -> Model:
    inputs = [helper.make_tensor_value_info(name, dtype, ["n", width]) for name, width in columns.items()]
    graph = helper.make_graph(
        nodes, "trees", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1])]
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return Model(ir.from_proto(helper.make_model(graph, opset_imports=opsets)))


def test_a_feature_is_fed_about_its_thresholds() -> None:
    found = domains(_model([_stump([0, 2, 0], [100.0, 7.5, 99.0])], {"table": 3}))["table"]
    assert found.kind == "table"
    assert found.columns == (Column(levels=(99.0, 100.0)), Column(), Column(levels=(7.5,)))


def test_missing_values_are_those_that_a_node_says_where_to_send() -> None:
    tracks = [1, 0, 0, 0, 0, 0]
    stump = _stump([0, 1], [1.0, 2.0], nodes_missing_value_tracks_true=tracks)
    found = domains(_model([stump], {"table": 2}))["table"]
    assert [column.missing for column in found.columns] == [True, False]


def test_each_of_several_columns_has_its_own_thresholds() -> None:
    nodes = [helper.make_node("Concat", ["age", "size"], ["table"], axis=1), _stump([0, 1], [40.0, 170.0])]
    found = domains(_model(nodes, {"age": 1, "size": 1}))
    assert [found[name].columns[0].levels for name in ("age", "size")] == [(40.0,), (170.0,)]


@pytest.mark.parametrize(("zeros", "unseen"), [(1, ("unseen",)), (0, ())])
def test_texts_are_those_that_an_encoder_knows(zeros: int, unseen: tuple[str, ...]) -> None:
    encoder = helper.make_node(
        "OneHotEncoder", ["town"], ["y"], domain="ai.onnx.ml", cats_strings=["Bonn", "Trier"], zeros=zeros
    )
    model = _model([encoder], {"town": 1}, TensorProto.STRING)
    found = domains(model)["town"]
    assert found.columns == (Column(codes=("Bonn", "Trier", *unseen)),)


@pytest.mark.parametrize("operator", ["Neg", "Abs"])
def test_a_value_that_is_computed_with_as_well_is_no_table(operator: str) -> None:
    nodes = [_stump([0], [5.0]), helper.make_node(operator, ["table"], ["other"])]
    assert domains(_model(nodes, {"table": 1}))["table"].kind == "real"


def test_an_open_width_holds_all_features_that_trees_read() -> None:
    """ONNX Runtime reads beyond a shorter row without a word."""
    model = _model([_stump([0, 19], [1.0, 2.0])], {"table": 20})
    model.graph.inputs[0].shape = ir.Shape(["n", "width"])
    sizes = next(OpenSizes(model.inputs, {"table": ("n", "width")}, graph=model).proposals(1))
    assert sizes["table"][1] == 20
