"""Lists of known content are replaced by their tensors, and the answers stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxport.optimizers.canonical_form import prepare
from tests.converters.tflite.models import model_of, run_onnx

FEEDS = {
    "x": np.arange(24, dtype=np.float32).reshape(6, 4),
    "y": np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32),
}
CONSTANTS = {"zero": 0, "one": 1, "last": -1, "two": 2, "sizes": [1, 3, 2]}
INITIALIZERS = [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in CONSTANTS.items()]


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), outputs.split()[0], **attributes)


def doubled_body() -> onnx.GraphProto:
    tensor = lambda name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)  # noqa: E731 - short
    nodes = [node("Add", "element element", "twice"), node("Mul", "twice other", "product")]
    return helper.make_graph(
        nodes, "body", [tensor("element"), tensor("other")], [tensor("product"), tensor("element")]
    )


# Each ends in tensors named "a" and "b".
GRAPHS: dict[str, list[onnx.NodeProto]] = {
    "torch's split": [
        node("SplitToSequence", "x two", "parts", axis=0),
        node("SequenceAt", "parts one", "a"),
        node("SequenceAt", "parts last", "b"),
    ],
    "torch's split_with_sizes": [
        node("SplitToSequence", "x sizes", "parts", axis=-2),
        node("SequenceAt", "parts one", "a"),
        node("SequenceLength", "parts", "b"),
    ],
    "torch's unbind": [
        node("SplitToSequence", "x", "rows", axis=1, keepdims=0),
        node("SequenceAt", "rows two", "a"),
        node("ConcatFromSequence", "rows", "b", axis=1, new_axis=1),
    ],
    "a list built, changed and joined": [
        node("SequenceEmpty", "", "empty"),
        node("SequenceInsert", "empty x", "first"),
        node("SequenceInsert", "first y zero", "second"),
        node("SequenceInsert", "second x last", "third"),
        node("SequenceErase", "third one", "fourth"),
        node("Identity", "fourth", "same"),
        node("ConcatFromSequence", "same", "a", axis=1),
        node("SequenceLength", "third", "b"),
    ],
    "a list constructed": [
        node("SequenceConstruct", "x y x", "list"),
        node("SequenceErase", "list", "shorter"),
        node("SequenceAt", "shorter last", "a"),
        node("ConcatFromSequence", "shorter", "b", axis=0, new_axis=1),
    ],
    "a body for every element": [
        node("SequenceConstruct", "x y", "list"),
        node("SequenceMap", "list y", "mapped same", body=doubled_body()),
        node("ConcatFromSequence", "mapped", "a", axis=0),
        node("SequenceAt", "same one", "b"),
    ],
    "optional values": [
        node("Optional", "x", "optional"),
        node("OptionalHasElement", "optional", "b"),
        node("OptionalGetElement", "optional", "got"),
        node("Neg", "got", "a"),
    ],
    "an element that is an output as it is": [
        node("SequenceConstruct", "x y", "list"),
        node("SequenceAt", "list zero", "a"),
        node("SequenceAt", "list zero", "b"),
    ],
}


@pytest.mark.parametrize("graph", GRAPHS)
def test_elements_of_a_known_list_are_used_directly(graph: str) -> None:
    model = model_of(GRAPHS[graph], FEEDS, INITIALIZERS, outputs=["a", "b"])
    prepared = prepare(model, shapes={}, native=frozenset).model
    left = {each.op_type for each in prepared.graph}
    assert not [op for op in left if "Sequence" in op or "Optional" in op]
    answers = run_onnx(prepared, {spec.name: FEEDS[spec.name] for spec in prepared.inputs})
    for name, expected in run_onnx(model, FEEDS).items():
        np.testing.assert_array_equal(answers[name], expected)
        assert answers[name].dtype == expected.dtype


def test_a_position_computed_at_run_time_leaves_the_list_alone() -> None:
    nodes = [node("SequenceConstruct", "x y", "list"), node("SequenceAt", "list place", "a")]
    model = model_of(nodes, {**FEEDS, "place": np.array(1)}, outputs=["a"])
    prepared = prepare(model, shapes={}, native=frozenset).model
    assert [each.op_type for each in prepared.graph] == ["SequenceConstruct", "SequenceAt"]


@pytest.mark.parametrize(
    ("split", "join"),
    [
        ({"axis": 0, "keepdims": 0}, {"axis": 1, "new_axis": 1}),
        ({"axis": 1, "keepdims": 0}, {"axis": -1, "new_axis": 1}),
        ({"axis": -1, "keepdims": 0}, {"axis": 0, "new_axis": 1}),
        ({"axis": 0}, {"axis": -3}),
    ],
)
def test_parts_of_an_unknown_number_that_are_joined_again(
    split: dict[str, int], join: dict[str, int]
) -> None:
    """As torch exports `torch.stack([row for row in x], 1)`, here at a length that the graph leaves open."""
    nodes = [node("SplitToSequence", "x", "rows", **split), node("ConcatFromSequence", "rows", "a", **join)]
    x = np.random.default_rng(0).standard_normal((5, 3, 4)).astype(np.float32)
    model = model_of(nodes, {"x": x}, outputs=["a"], open_dims={"x": ["L", "K", "M"]})
    prepared = prepare(model, shapes={}, native=frozenset).model
    assert {each.op_type for each in prepared.graph} <= {"Transpose", "Identity"}
    np.testing.assert_array_equal(run_onnx(prepared, {"x": x})["a"], run_onnx(model, {"x": x})["a"])
