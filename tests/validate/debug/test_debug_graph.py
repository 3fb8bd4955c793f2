"""The graph as `debug` sees it, against what ONNX Runtime makes of the parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime

from onnxport.formats.model import Model
from onnxport.validate.debug.graph import ANSWER_SUFFIX, Network
from tests.validate.debug import networks


def test_frontier_stops_at_what_is_given(tmp_path: Path) -> None:
    network = Network(Model.load(networks.diamond(tmp_path / "m.onnx")))
    assert network.frontier("y", frozenset({"a", "l", "r2"})) == ["l", "r2"]
    assert [network.nodes[i].name for i in network.between("y", frozenset({"a", "r2"}))] == [
        "left",
        "left_2",
        "bottom",
    ]


def test_ancestors_leave_the_other_branch_out(tmp_path: Path) -> None:
    network = Network(Model.load(networks.diamond(tmp_path / "m.onnx")))
    assert network.ancestors(["l2"]) == {"l2", "l", "a"}


def test_a_body_reads_from_outside(tmp_path: Path) -> None:
    network = Network(Model.load(networks.with_if(tmp_path / "m.onnx", 2.0)))
    assert network.frontier("b", frozenset({"a", "c"})) == ["a", "c"]


def test_a_function_is_its_body(tmp_path: Path) -> None:
    network = Network(Model.load(networks.with_function(tmp_path / "m.onnx", 2.0)))
    assert [node.op_type for node in network.nodes] == ["Relu", "Mul", "Tanh"]


def test_a_value_is_given_and_computed_in_one_part(tmp_path: Path) -> None:
    network = Network(Model.load(networks.diamond(tmp_path / "m.onnx")))
    part = network.part(["l", "l2"], frozenset({"a", "l"}))
    assert part.inputs == ("a", "l")
    assert part.answers == {"l": "l" + ANSWER_SUFFIX, "l2": "l2"}
    for value in part.proto.graph.input:
        value.type.tensor_type.elem_type = 1
    session = onnxruntime.InferenceSession(part.proto.SerializeToString())
    mine, next_one = session.run(
        list(part.answers.values()), {"a": np.array([[1.0]], "f4"), "l": np.array([[-7.0]], "f4")}
    )
    assert mine == 2.0, "computed from what is given for a"
    assert next_one == 7.0, "computed from what is given for l, not from what was computed"
