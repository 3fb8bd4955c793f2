"""A data file held against a model: what is taken, in how many groups, and the reasons for the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from pydantic import ValidationError

from onnxport.deployment.estimation import estimate, group_nodes
from onnxport.deployment.estimation.graph import estimation_graph
from onnxport.deployment.estimation.table import Table, has_table, load_table
from onnxport.deployment.report import Placement
from onnxport.deployment.runtimes import RUNTIMES
from onnxport.formats.model import Model

FLOAT = TensorProto.FLOAT


def model(
    nodes: list[onnx.NodeProto],
    shape: tuple[Any, ...] = (1, 3, 8, 8),
    weights: dict[str, Any] | None = None,
    opset: int = 17,
) -> Model:
    """A graph from "x" to "y"."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return Model(ir.from_proto(proto))


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(
        op, inputs.split(), outputs.split(), name=f"{op}_{outputs.split()[0]}", **attributes
    )


def table(operators: dict[str, Any], **more: Any) -> Table:
    head = {
        "runtime": "r",
        "title": "R",
        "kind": "engine",
        "version": "1",
        "sources": ["s"],
        "dated": "2025-01-02",
    }
    return Table.model_validate({**head, "fallback": "the CPU", "operators": operators, **more})


def placed(subject: Model, operators: dict[str, Any], **more: Any) -> Placement:
    return estimate(estimation_graph(subject), table(operators, **more)).placement


def why(subject: Model, rule: Any, op: str = "Conv") -> str:
    """Why the only node is not taken, "" where it is."""
    found = placed(subject, {op: rule}).fallbacks
    return found[0].why if found else ""


CONV = model([node("Conv", "x w", "y", dilations=[2, 1])], weights={"w": np.ones((4, 3, 1, 1), np.float32)})


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (None, ""),
        (
            {
                "version": "11..21",
                "types": {"T": "float32"},
                "ranks": {"X": 4},
                "constant": "W",
                "static": "X",
            },
            "",
        ),
        ({"version": 12}, "Conv of opset 11, only 12"),
        ({"version": "..10"}, "Conv of opset 11, at most 10"),
        ({"types": {"W": ["float16", "int8"]}}, "'w' is float32, it takes float16, int8"),
        ({"types": {"0": "halves"}}, "'x' is float32, it takes float16"),
        ({"ranks": {"outputs": "..3"}}, "rank 4 of 'y', at most 3"),
        ({"constant": "X"}, "'x' is computed at run time, but it must be constant"),
        ({"attributes": {"dilations": [1]}}, "dilations is [2, 1], it takes 1"),
        ({"attributes": {"dilations": "1..2", "group": [1], "auto_pad": ["NOTSET"]}}, ""),
        ({"attributes": {"group": "2.."}}, "group is 1, at least 2"),
        ({"inputs": 3}, "2 inputs, only 3"),
        ({"conditions": {"known_dimensions": {"X": [0]}}}, ""),
    ],
)
def test_each_part_of_a_rule_refuses_in_the_models_own_terms(rule: Any, said: str) -> None:
    found = placed(CONV, {"Conv": rule}, sets={"halves": ["float16"]}).fallbacks
    assert [each.why for each in found] == ([said] if said else [])
    assert all((each.op, each.node) == ("Conv", "Conv_y") for each in found)


def test_open_shapes_are_reasons() -> None:
    subject = model([node("Relu", "x", "y")], shape=("N", 3))
    assert why(subject, {"static": "all"}, "Relu") == "the shape of 'x' is open: [N, 3]"


def test_one_of_several_rules_is_enough_else_the_nearest_reason_is_given() -> None:
    assert why(CONV, [{"version": 1}, {"version": 11}]) == ""
    assert why(CONV, [{"version": 1}, {"version": 11, "ranks": {"X": 3}}]) == "rank 4 of 'x', only 3"


def test_taken_nodes_are_one_group_as_long_as_none_waits_for_the_fallback() -> None:
    nodes = [node("Relu", "x", "a"), node("Exp", "a", "b"), node("Abs", "a", "c"), node("Add", "b c", "y")]
    found = placed(model(nodes), dict.fromkeys(("Relu", "Abs", "Add")))
    # Add waits for Exp, which waits for Relu: one group of all three would wait for itself.
    assert (found.extent, found.taken, found.partitions) == ("part", 3, 2)
    whole = estimation_graph(model(nodes))
    names = [
        [each.op for each in group] for group in group_nodes(whole, [n for n in whole.nodes if n.op != "Exp"])
    ]
    assert names == [["Relu", "Abs"], ["Add"]]


def test_branches_that_do_not_wait_for_each_other_are_one_group() -> None:
    nodes = [node("Relu", "x", "a"), node("Abs", "x", "b"), node("Exp", "x", "e"), node("Sum", "a b", "y")]
    found = placed(model(nodes), dict.fromkeys(("Relu", "Abs", "Sum")))
    assert (found.taken, found.nodes, found.partitions) == (3, 4, 1)


def test_small_groups_fall_back() -> None:
    nodes = [node("Relu", "x", "a"), node("Exp", "a", "b"), node("Relu", "b", "c"), node("Relu", "c", "y")]
    found = placed(model(nodes), {"Relu": None}, smallest=2)
    assert (found.taken, found.partitions) == (2, 1)
    assert found.fallbacks[0].why == "a group of 1 taken nodes, at least 2"


def test_without_a_fallback_it_is_all_or_nothing() -> None:
    subject = model([node("Relu", "x", "a"), node("Exp", "a", "y")])
    assert placed(subject, {"Relu": None, "Exp": None}, fallback="").extent == "all"
    refused = placed(subject, {"Relu": None}, fallback="")
    assert (refused.extent, refused.taken, refused.partitions) == ("none", 1, None)


def test_constant_nodes_become_constants() -> None:
    constant = helper.make_node("Constant", [], ["s"], value=numpy_helper.from_array(np.array([1, -1])))
    subject = model([constant, node("Reshape", "x s", "y")])
    found = placed(subject, {"Reshape": {"constant": "shape"}})
    assert (found.extent, found.nodes) == ("all", 1)


def test_functions_are_written_out() -> None:
    function = helper.make_function(
        "own",
        "Twice",
        ["a"],
        ["b"],
        [node("Relu", "a", "t"), node("Exp", "t", "b")],
        [helper.make_opsetid("", 17)],
    )
    graph = helper.make_graph(
        [helper.make_node("Twice", ["x"], ["y"], domain="own")],
        "g",
        [helper.make_tensor_value_info("x", FLOAT, (1,))],
        [helper.make_tensor_value_info("y", FLOAT, (1,))],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    proto = helper.make_model(graph, opset_imports=imports, functions=[function], ir_version=8)
    found = placed(Model(ir.from_proto(proto)), {"Relu": None})
    assert [each.op for each in found.fallbacks] == ["Exp"]


def test_nodes_in_bodies_count_and_may_be_refused_as_such() -> None:
    def branch(op: str) -> onnx.GraphProto:
        value = helper.make_tensor_value_info(f"{op}_out", FLOAT, None)
        return helper.make_graph([node(op, "x", f"{op}_out")], op, [], [value])

    choice = helper.make_node(
        "If", ["c"], ["y"], name="if", then_branch=branch("Relu"), else_branch=branch("Exp")
    )
    subject = model([choice], weights={"c": np.array(True)})
    operators = dict.fromkeys(("If", "Relu", "Exp"))
    assert placed(subject, operators).nodes == 3
    outside = placed(subject, operators, bodies=False)
    assert (outside.taken, {each.why for each in outside.fallbacks}) == (1, {"it is inside If, Loop or Scan"})


def test_an_opset_beyond_the_tables_keeps_the_model_out() -> None:
    found = placed(CONV, {"Conv": None}, opset="..16")
    assert (found.extent, found.why) == ("none", "opset 17, at most 16")


def test_operators_of_another_domain_have_its_name() -> None:
    subject = model([node("Relu", "x", "a"), helper.make_node("Gelu", ["a"], ["y"], domain="com.microsoft")])
    subject.ir.opset_imports["com.microsoft"] = 1
    assert placed(subject, {"Relu": None, "com.microsoft::Gelu": None}).extent == "all"
    assert (
        placed(subject, {"Relu": None, "Gelu": None}).fallbacks[0].why
        == "the runtime has no operator com.microsoft::Gelu"
    )


def test_an_activation_behind_a_node_that_is_not_taken_is_not_fused() -> None:
    subject = model(
        [node("Conv", "x w", "a"), node("Relu", "a", "y")], weights={"w": np.ones((4, 3, 1, 1), np.float32)}
    )
    rule = {"Relu": {"conditions": {"behind": ["Conv"]}}}
    assert placed(subject, {"Conv": None, **rule}).extent == "all"
    refused = placed(subject, {"Conv": {"ranks": {"X": 3}}, **rule})
    assert [each.why for each in refused.fallbacks] == [
        "rank 4 of 'x', only 3",
        "'Conv_a' before it is not taken",
    ]


@pytest.mark.parametrize(
    "mistake", [{"operators": {"Conv": {"rank": 4}}}, {"operators": {"Conv": {"conditions": {"no": 1}}}}]
)
def test_a_data_file_with_a_mistake_is_refused(mistake: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        table(**mistake)


# ONNX Runtime writes them into ONNX's domain.
OF_ONNX_RUNTIME = ("SimplifiedLayerNormalization",)
TABLES = [name for name in RUNTIMES if has_table(name)]


@pytest.mark.parametrize("name", TABLES)
def test_data_files_hold_together(name: str) -> None:
    """Parameters and attributes that they name are ones of the operator's schema."""
    read = load_table(name)
    for operator, rules in read.operators.items():
        domain, _, op = operator.rpartition("::")
        known = [
            each
            for each in onnx.defs.get_all_schemas_with_history()
            if (each.domain, each.name) == (domain, op)
        ]
        if not known:
            foreign = domain not in ("", "ai.onnx.ml") or op in OF_ONNX_RUNTIME
            assert foreign, f"{name}: {operator} is no operator of ONNX"
            continue
        values = [value for each in known for value in (*each.inputs, *each.outputs)]
        keys = (
            {value.name for value in values}
            | {value.type_str for value in values}
            | {"inputs", "outputs", "all"}
        )
        attributes = {attribute for each in known for attribute in each.attributes}
        for rule in rules:
            used = {*rule.types, *rule.ranks, *rule.constant, *rule.static}
            wrong = {key for key in used - keys if not key.removeprefix("out ").isdecimal()}
            assert not wrong, f"{name}: {operator} has no {wrong}"
            assert set(rule.attributes) <= attributes, f"{name}: {operator}"
