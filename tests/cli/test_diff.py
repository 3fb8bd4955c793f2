"""`onnxport diff`."""

from __future__ import annotations

import json

import onnx
import pytest
from onnx import numpy_helper

from tests.cli.sandbox import ROOT, Sandbox

SAMPLES = ROOT / "fixtures" / "digits" / "test.npz"


def test_it_names_the_change_and_what_it_does(sandbox: Sandbox) -> None:
    model = onnx.load(sandbox.model)
    weight = next(each for each in model.graph.initializer if len(each.dims) == 1)
    numbers = numpy_helper.to_array(weight).copy()
    numbers[0] += 1
    weight.CopyFrom(numpy_helper.from_array(numbers, weight.name))
    onnx.save(model, sandbox.folder / "other.onnx")
    outcome = sandbox.run("diff", "model.onnx", "other.onnx")
    assert outcome.code == 0, outcome.stderr
    assert f"weight {weight.name}, 1 of {numbers.size} elements, most at [0]" in outcome.stdout
    assert "what they compute" in outcome.stdout
    assert "is at fault" in outcome.stdout
    found = sandbox.run("diff", "model.onnx", "other.onnx", "--no-run", "--json").document
    assert found["run"] is None
    assert [change["kind"] for change in found["graph"]["changes"]] == ["changed"]


def test_one_model_twice_has_no_difference(sandbox: Sandbox) -> None:
    outcome = sandbox.run("diff", "model.onnx", "model.onnx", "--no-run")
    assert outcome.code == 0
    assert "no node, attribute or weight differs" in outcome.stdout


def converted(sandbox: Sandbox, target: str, *options: str) -> str:
    name = {"coreml": "model.mlpackage"}.get(target, f"model.{target}")
    outcome = sandbox.run("convert", "model.onnx", "--to", target, "-o", name, "--no-validate", *options)
    assert outcome.code == 0, outcome.stderr
    return name


# How each format names the operator that two convolutions, their normalization and their Relu became.
CONVOLUTIONS = {"ort": "Conv", "tflite": "CONV_2D", "coreml": "conv"}


@pytest.mark.parametrize("target", CONVOLUTIONS)
def test_a_converted_form_is_matched_node_by_node(target: str, sandbox: Sandbox) -> None:
    name = converted(sandbox, target)
    graph = sandbox.run("diff", "model.onnx", name, "--no-run", "--json").document["graph"]
    assert [change["kind"] for change in graph["changes"]] == []
    became = {each["second"].split()[0]: [node["op"] for node in each["first"]] for each in graph["became"]}
    assert became[CONVOLUTIONS[target]] == ["Conv", "BatchNormalization", "Relu"]
    outcome = sandbox.run("diff", "model.onnx", name)
    assert outcome.code == 0, outcome.stderr
    assert "= Conv 'conv1', BatchNormalization 'bn1', Relu 'relu1' -> " in outcome.stdout
    assert "the two agree" in outcome.stdout or "proven" in outcome.stdout


@pytest.mark.parametrize("target", CONVOLUTIONS)
def test_a_weight_that_differs_is_found_in_a_converted_form(target: str, sandbox: Sandbox) -> None:
    name = converted(sandbox, target)
    model = onnx.load(sandbox.model)
    weight = next(each for each in model.graph.initializer if len(each.dims) == 4)
    numbers = numpy_helper.to_array(weight).copy()
    numbers[1] *= 2
    weight.CopyFrom(numpy_helper.from_array(numbers, weight.name))
    onnx.save(model, sandbox.model)
    graph = sandbox.run("diff", "model.onnx", name, "--no-run", "--json").document["graph"]
    (change,) = [each for each in graph["changes"] if each["kind"] == "changed"]
    reader = next(node for node in model.graph.node if weight.name in node.input)
    assert (change["node"]["name"], change["details"][0]["kind"]) == (reader.name, "weight")


def test_what_is_quantized_in_a_converted_form_is_counted(sandbox: Sandbox) -> None:
    name = converted(sandbox, "tflite", "--precision", "int8", "--calib", str(SAMPLES))
    outcome = sandbox.run("diff", "model.onnx", name, "--no-run")
    assert outcome.code == 0, outcome.stderr
    assert "3 float32 -> int8 per channel" in outcome.stdout


BRANCHES = """g (float[1, 3] x, bool c) => (float[1, 3] y) {
    y = If (c) <then_branch = t () => (float[1, 3] a) { a = Relu (x) },
                else_branch = e () => (float[1, 3] b) { b = Neg (x) }>
}"""


def test_what_cannot_be_matched_is_named_with_its_operator(sandbox: Sandbox) -> None:
    text = f'<ir_version: 8, opset_import: ["" : 17]>\n{BRANCHES}'
    onnx.save(onnx.parser.parse_model(text), sandbox.model)
    outcome = sandbox.run("diff", "model.onnx", converted(sandbox, "tflite"), "--no-run")
    assert outcome.code == 0, outcome.stderr
    assert "0 equal nodes" in outcome.stdout
    assert "note: IF 'y' was not compared" in outcome.stdout
    assert "IF is not known here" in outcome.stdout


def test_a_first_file_of_another_format_is_refused(sandbox: Sandbox) -> None:
    (sandbox.folder / "model.tflite").write_bytes(b"TFL3")
    outcome = sandbox.run("diff", "model.tflite", "model.onnx")
    assert outcome.code == 2
    assert "onnxport diff model.onnx model.tflite" in outcome.stderr


def test_the_page_has_what_the_text_has(sandbox: Sandbox) -> None:
    name = converted(sandbox, "tflite")
    outcome = sandbox.run(
        "diff", "model.onnx", name, "--report", "diff.html", "--report", "diff.json", "--json"
    )
    assert outcome.code == 0, outcome.stderr
    page = (sandbox.folder / "diff.html").read_text()
    for said in (
        "BatchNormalization &#39;bn1&#39;",
        "CONV_2D &#39;relu1&#39;",
        "the two agree",
        "onnx -&gt; tflite",
    ):
        assert said in page
    assert json.loads((sandbox.folder / "diff.json").read_text()) == outcome.document
    assert sandbox.run("diff", "model.onnx", name, "--report", "diff.sarif").code == 2


@pytest.mark.parametrize("command", ["diff", "debug"])
def test_a_name_of_100_kb_is_shortened_for_people_and_whole_in_json(command: str, sandbox: Sandbox) -> None:
    name, length = "n" * 100_000, 600
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2, 3] x) => (float[2, 3] y) {
        a = LeakyRelu <alpha = 0.1> (x)  b = Sin (a)  y = Exp (b)
    }"""
    for path, alpha in ((sandbox.model, "0.1"), (sandbox.folder / "other.onnx", "0.5")):
        model = onnx.parser.parse_model(text.replace("0.1", alpha))
        model.graph.node[0].name = model.graph.node[0].output[0] = model.graph.node[1].input[0] = name
        onnx.save(model, path)
    outcome = sandbox.run(command, "model.onnx", "other.onnx", "--report", "page.html")
    page = (sandbox.folder / "page.html").read_text(encoding="utf-8")
    assert "LeakyRelu 'nnnn" in outcome.stdout
    assert max(map(len, (*outcome.stdout.splitlines(), *outcome.stderr.splitlines()))) < length
    assert "nnnn" in page
    assert "n" * 1000 not in page
    assert name in sandbox.run(command, "model.onnx", "other.onnx", "--json").stdout
