"""`--operators`: the user's own operators as ONNX functions. `--custom-ops-library`: kernels that ONNX Runtime runs."""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.cli.failing import Case, assert_fails, registering
from tests.cli.sandbox import ROOT, Sandbox

CASES: dict[str, Case] = {}
case = registering(CASES)

WEIGHTS = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
# The definition and the command of the guide; the definition has an older opset than the models, and a default.
GUIDE = ROOT / "docs" / "guide" / "own-operators.md"
_DEFINITION = re.search(r"    # y = alpha .*?\n    }\n", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
assert _DEFINITION is not None
WEIGH = textwrap.dedent(_DEFINITION[0])
NEGPOS = """
<domain: "ai.onnx.contrib", opset_import: ["": 18]>
NegPos (x) => (n, p) {
  zero = Constant <value_float: float = 0.0> ()
  n = Min (x, zero)
  p = Max (x, zero)
}
"""


def save(sandbox: Sandbox, nodes: list[onnx.NodeProto], domain: str) -> Path:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(WEIGHTS, "w")])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(domain, 1)]
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=opsets), sandbox.folder / "own.onnx")
    return sandbox.folder / "own.onnx"


def weighing(sandbox: Sandbox) -> Path:
    """relu -> Weigh (alpha 0.5) -> w -> Weigh (its default)."""
    weigh = {"domain": "com.acme"}
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Weigh", ["a"], ["b"], "head/weigh", **weigh, alpha=0.5),
        helper.make_node("MatMul", ["b", "w"], ["c"]),
        helper.make_node("Weigh", ["c"], ["y"], **weigh),
    ]
    (sandbox.folder / "acme.txt").write_text(WEIGH)
    return save(sandbox, nodes, "com.acme")


def splitting(sandbox: Sandbox, definition: str = NEGPOS) -> Path:
    """tanh -> NegPos of onnxruntime-extensions -> p w - n."""
    nodes = [
        helper.make_node("Tanh", ["x"], ["a"]),
        helper.make_node("NegPos", ["a"], ["n", "p"], "split", domain="ai.onnx.contrib"),
        helper.make_node("MatMul", ["p", "w"], ["c"]),
        helper.make_node("Sub", ["c", "n"], ["y"]),
    ]
    (sandbox.folder / "negpos.txt").write_text(definition)
    return save(sandbox, nodes, "ai.onnx.contrib")


def library() -> Path:
    extensions = pytest.importorskip("onnxruntime_extensions", reason="pip install onnxruntime-extensions")
    return Path(extensions.get_library_path())


@pytest.mark.parametrize("target", ["tflite", "coreml", "ort"])
def test_definitions_convert_to_every_target(sandbox: Sandbox, target: str) -> None:
    weighing(sandbox)
    done = sandbox.run("convert", "own.onnx", "--to", target, "--operators", "acme.txt", "--json")
    assert done.code == 0, done.stderr
    (artifact,) = done.document["artifacts"]
    assert artifact["report"]["verdict"] == "proven"
    assert "nodes are computed as acme.txt defines them: com.acme::Weigh (2)" in artifact["notes"]
    assert any("takes these definitions as right" in note for note in artifact["notes"])


def test_the_guide_s_commands_run(sandbox: Sandbox) -> None:
    weighing(sandbox).rename(sandbox.model)
    (sandbox.folder / "weigh.txt").write_text(WEIGH)
    commands = re.findall(r"onnxport (.* --operators weigh\.txt.*?)(?:`|$)", GUIDE.read_text(), re.MULTILINE)
    assert {command.split()[0] for command in commands} == {"convert", "optimize"}
    for command in commands:
        done = sandbox.run(*shlex.split(command))
        assert done.code == 0, done.stderr


def test_optimize_writes_the_definitions_out(sandbox: Sandbox) -> None:
    weighing(sandbox)
    done = sandbox.run("optimize", "own.onnx", "--operators", "acme.txt", "-o", "plain.onnx")
    assert done.code == 0, done.stderr
    session = onnxruntime.InferenceSession(sandbox.folder / "plain.onnx", providers=["CPUExecutionProvider"])
    x = np.random.default_rng(1).standard_normal((2, 4)).astype(np.float32)
    expected = 2 * np.tanh(0.5 * np.tanh(np.maximum(x, 0)) @ WEIGHTS)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-5, atol=1e-6)


def test_quantization_reads_the_model_with_its_definitions(sandbox: Sandbox) -> None:
    weighing(sandbox)
    (sandbox.folder / "in").mkdir()
    for number in range(3):
        x = np.random.default_rng(number).standard_normal((1, 4)).astype(np.float32)
        np.savez(sandbox.folder / "in" / f"{number}.npz", x=x)
    done = sandbox.run(
        *("quantize", "own.onnx", "--int8", "--calib", "in", "--operators", "acme.txt", "--no-latency")
    )
    assert done.code == 0, done.stderr


@pytest.mark.parametrize("target", ["tflite", "coreml"])
def test_the_refusal_names_the_option(sandbox: Sandbox, target: str) -> None:
    weighing(sandbox)
    done = sandbox.run("convert", "own.onnx", "--to", target)
    assert done.code == 3
    assert "com.acme::Weigh  'head/weigh'" in done.stderr
    assert "--operators FILE defines it in ONNX's operators" in done.stderr


def test_a_model_s_own_functions_may_have_another_opset(sandbox: Sandbox) -> None:
    model = onnx.load(weighing(sandbox))
    # The checker wants operators that did not change between the two opsets.
    definition = (
        '<domain: "com.acme", opset_import: ["": 18]> Weigh (x) => (y) { t = Tanh (x)  y = Add (t, t) }'
    )
    text = f'<ir_version: 10, opset_import: ["": 21]> none () => () {{}} {definition}'
    model.functions.extend(onnx.parser.parse_model(text).functions)
    del model.graph.node[1].attribute[:]
    onnx.save(model, sandbox.folder / "own.onnx")
    done = sandbox.run("convert", "own.onnx", "--to", "tflite")
    assert done.code == 0, done.stderr


def test_kernels_of_a_library_prove_the_definition(sandbox: Sandbox) -> None:
    kernels = library()
    splitting(sandbox)
    asked = ("--operators", "negpos.txt", "--custom-ops-library", kernels)
    done = sandbox.run("convert", "own.onnx", "--to", "tflite", *asked)
    assert done.code == 0, done.stderr
    assert "takes these definitions as right" not in done.stderr
    done = sandbox.run("validate", "own.onnx", "own.tflite", "--custom-ops-library", kernels, "--json")
    assert done.code == 0, done.stderr
    assert f"custom operators of {kernels.name}" in done.stdout


def test_kernels_of_a_library_find_a_wrong_definition(sandbox: Sandbox) -> None:
    kernels = library()
    splitting(sandbox, NEGPOS.replace("Min (x, zero)", "Neg (x)"))
    asked = ("--operators", "negpos.txt", "--custom-ops-library", kernels)
    done = sandbox.run("convert", "own.onnx", "--to", "tflite", *asked)
    assert done.code == 1, done.stdout
    assert not (sandbox.folder / "own.tflite").exists()


def test_onnx_runtime_s_own_format_keeps_custom_operators(sandbox: Sandbox) -> None:
    kernels = library()
    splitting(sandbox)
    done = sandbox.run("convert", "own.onnx", "--to", "ort", "--custom-ops-library", kernels)
    assert done.code == 0, done.stderr
    assert "proven" in done.stdout


@case(4, "nowhere.txt does not exist")
def missing_definitions(sandbox: Sandbox) -> tuple[str | Path, ...]:
    weighing(sandbox)
    return ("convert", "own.onnx", "--to", "tflite", "--operators", "nowhere.txt")


@case(4, "acme.txt is no list of ONNX functions", "line: 1", 'write <domain: "acme"')
def definitions_that_do_not_parse(sandbox: Sandbox) -> tuple[str | Path, ...]:
    weighing(sandbox)
    (sandbox.folder / "acme.txt").write_text("def weigh(x): return x")
    return ("convert", "own.onnx", "--to", "tflite", "--operators", "acme.txt")


@case(4, "own.onnx defines no operator")
def definitions_in_a_model_without_functions(sandbox: Sandbox) -> tuple[str | Path, ...]:
    weighing(sandbox)
    return ("convert", "own.onnx", "--to", "tflite", "--operators", "own.onnx")


@case(2, "own.onnx has no node that acme.txt defines: it defines ai.onnx.contrib::NegPos")
def definitions_of_other_operators(sandbox: Sandbox) -> tuple[str | Path, ...]:
    weighing(sandbox)
    (sandbox.folder / "acme.txt").write_text(NEGPOS)
    return ("convert", "own.onnx", "--to", "tflite", "--operators", "acme.txt")


@case(4, "the library nowhere.so does not exist")
def missing_library(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("validate", "model.onnx", "model.onnx", "--custom-ops-library", "nowhere.so")


@case(4, "ONNX Runtime cannot load the library", "RegisterCustomOps")
def file_that_is_no_library(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("validate", "model.onnx", "model.onnx", "--custom-ops-library", "model.onnx")


@pytest.mark.parametrize("name", CASES)
def test_bad_definitions_and_libraries_are_refused(name: str, sandbox: Sandbox) -> None:
    assert_fails(CASES[name], sandbox)
