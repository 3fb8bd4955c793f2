"""`--allow-custom-ops`: what nobody here knows is kept for a runtime that does, and nothing is claimed of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from ai_edge_litert import schema_py_generated as schema
from flatbuffers import flexbuffers
from onnx import TensorProto, helper

from tests.cli.sandbox import Sandbox

CONVERT = ("convert", "custom.onnx", "--to", "tflite", "--route", "direct")


def custom_model(**attributes: Any) -> onnx.ModelProto:
    """Relu, an operator of a domain that only its maker knows, and Sigmoid, over an open batch."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Weigh", ["a"], ["b"], "head/weigh", domain="com.acme", **attributes),
        helper.make_node("Sigmoid", ["b"], ["y"]),
    ]
    x, b, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in "xby")
    graph = helper.make_graph(nodes, "g", [x], [y], value_info=[b])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.acme", 1)]
    return helper.make_model(graph, ir_version=10, opset_imports=opsets)


def saved(sandbox: Sandbox, **attributes: Any) -> Path:
    onnx.save(custom_model(**attributes), sandbox.folder / "custom.onnx")
    return sandbox.folder / "custom.tflite"


def test_the_refusal_names_the_operator_and_the_option(sandbox: Sandbox) -> None:
    output = saved(sandbox)
    outcome = sandbox.run(*CONVERT)
    assert outcome.code == 3
    assert "com.acme::Weigh  'head/weigh'" in outcome.stderr
    assert "--allow-custom-ops" in outcome.stderr
    assert not output.exists()


def test_an_operator_whose_results_nobody_declares_says_what_to_declare(sandbox: Sandbox) -> None:
    model = custom_model()
    del model.graph.value_info[:]
    onnx.save(model, sandbox.folder / "custom.onnx")
    outcome = sandbox.run(*CONVERT, "--allow-custom-ops")
    assert outcome.code == 3
    assert "declare them in the model's value_info" in outcome.stderr


def test_kept_operators_leave_unproven(sandbox: Sandbox) -> None:
    output = saved(sandbox, alpha=0.5, axes=[1, 2], mode="fast")
    outcome = sandbox.run(*CONVERT, "--allow-custom-ops", "--json")
    assert outcome.code == 0, outcome.stderr
    (artifact,) = outcome.document["artifacts"]
    assert artifact["report"]["verdict"] == "unproven"
    assert "Weigh" in artifact["report"]["reason"]
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(output.read_bytes(), 0))
    graph = model.subgraphs[0]
    (operator,) = [each for each in graph.operators if model.operatorCodes[each.opcodeIndex].customCode]
    assert model.operatorCodes[operator.opcodeIndex].customCode == b"Weigh"
    assert [*graph.tensors[operator.outputs[0]].shapeSignature] == [-1, 4]
    options = flexbuffers.Loads(bytearray(operator.customOptions))
    assert options == {"alpha": 0.5, "axes": [1, 2], "mode": "fast"}


def test_what_a_custom_operator_cannot_say_is_refused(sandbox: Sandbox) -> None:
    body = helper.make_graph(
        [helper.make_node("Neg", ["p"], ["q"])],
        "body",
        [helper.make_tensor_value_info("p", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("q", TensorProto.FLOAT, [1])],
    )
    saved(sandbox, body=body)
    outcome = sandbox.run(*CONVERT, "--allow-custom-ops")
    assert outcome.code == 3
    assert "its attribute 'body'" in outcome.stderr


def test_models_of_known_operators_are_proven_as_ever(sandbox: Sandbox) -> None:
    outcome = sandbox.run("convert", "model.onnx", "--to", "tflite", "--allow-custom-ops", "--json")
    assert outcome.document["artifacts"][0]["report"]["verdict"] == "proven"
