"""The second route, `--route auto|direct|onnx2tf`, with stand-ins for onnx2tf that do what it was seen to do."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from ai_edge_litert import schema_py_generated as schema
from onnx import TensorProto, helper, numpy_helper

from onnxport.runtimes.litert import TfliteRuntime
from tests.cli.failing import Case, assert_fails, registering
from tests.cli.sandbox import Sandbox

# What every stand-in begins with: it rewrites its input, as onnx2tf does.
_BEGINNING = """\
import os, pathlib, shutil, sys, time
model = pathlib.Path(sys.argv[sys.argv.index("-i") + 1])
assert pathlib.Path.cwd() not in pathlib.Path(__file__).parents and "PYTHONPATH" not in os.environ
model.write_bytes(b"rewritten")
written = pathlib.Path("out", "model_float32.tflite")
written.parent.mkdir()
"""
_GIVES = 'shutil.copyfile(pathlib.Path(__file__).with_name("made.tflite"), written)\n'
ONNX2TF = ("--onnx2tf", "peer/onnx2tf")
ROUTE = ("convert", "model.onnx", "--to", "tflite", "--route", "onnx2tf", *ONNX2TF)

FAILURES: dict[str, Case] = {}
case = registering(FAILURES)


def stand_in(sandbox: Sandbox, code: str, made: bytes | None = None, *, onnxsim: bool = True) -> Path:
    """An onnx2tf that runs `code`, with an onnxsim beside it; the file it may give is `made`."""
    folder = sandbox.folder / "peer"
    folder.mkdir()
    for name in ("onnx2tf", "onnxsim") if onnxsim else ("onnx2tf",):
        (folder / name).write_text(f"#!{sys.executable}\n{_BEGINNING}{code}")
        (folder / name).chmod(0o755)
    if made is not None:
        (folder / "made.tflite").write_bytes(made)
    return folder


def made_by_others(sandbox: Sandbox, model: Path | None = None, *, name: str = "in0") -> bytes:
    """The model as another converter would write it: channels last, input and output renamed, no note of ours."""
    output = sandbox.folder / "foreign.tflite"
    done = sandbox.run(
        *("convert", model or "model.onnx", "--to", "tflite", "--layout", "nhwc", "--no-validate"),
        *("-o", output),
    )
    assert done.code == 0, done.stderr
    content = schema.ModelT.InitFromObj(schema.Model.GetRootAs(output.read_bytes(), 0))
    output.unlink()
    content.metadata = [entry for entry in content.metadata if entry.name != b"onnxport"]
    (signature,) = content.signatureDefs
    signature.inputs[0].name, signature.outputs[0].name = name, "out0"
    builder = schema.flatbuffers.Builder(1 << 16)
    builder.Finish(content.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def square_model(scale: float) -> onnx.ModelProto:
    """A convolution of a picture whose height, width and channels are of one size: shapes tell nothing there."""
    weights = np.random.default_rng(0).standard_normal((3, 3, 1, 1)).astype(np.float32) * scale
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3, 3, 3]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        "g",
        ends[:1],
        ends[1:],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])


def test_what_it_makes_is_proven_and_told_apart(sandbox: Sandbox) -> None:
    stand_in(sandbox, _GIVES, made_by_others(sandbox))
    before = sandbox.model.read_bytes()
    outcome = sandbox.run(*ROUTE, "--json")
    assert outcome.code == 0, outcome.stderr
    (artifact,) = outcome.document["artifacts"]
    assert artifact["report"]["verdict"] == "proven"
    assert artifact["facts"]["route"] == "onnx2tf"
    assert artifact["notes"][0].startswith("made by onnx2tf")
    assert sandbox.model.read_bytes() == before
    assert not list(sandbox.temporary.iterdir())
    with TfliteRuntime(sandbox.folder / "model.tflite") as runtime:
        assert [spec.name for spec in runtime.inputs] == ["image"]
        assert [spec.name for spec in runtime.outputs] == ["logits"]
        assert runtime.permutations == {"image": (0, 2, 3, 1)}


def test_answers_tell_how_a_square_picture_lies(sandbox: Sandbox) -> None:
    onnx.save(square_model(1.0), sandbox.folder / "square.onnx")
    stand_in(sandbox, _GIVES, made_by_others(sandbox, Path("square.onnx")))
    outcome = sandbox.run("convert", "square.onnx", "--to", "tflite", "--route", "onnx2tf", *ONNX2TF)
    assert outcome.code == 0, outcome.stderr
    with TfliteRuntime(sandbox.folder / "square.tflite") as runtime:
        assert runtime.permutations == {"x": (0, 2, 3, 1), "y": (0, 2, 3, 1)}


def test_auto_asks_it_only_for_what_we_refuse(sandbox: Sandbox) -> None:
    stand_in(sandbox, "sys.exit('it was asked')")
    outcome = sandbox.run("convert", "model.onnx", "--to", "tflite", *ONNX2TF, "--json")
    assert outcome.code == 0, outcome.stderr
    assert outcome.document["artifacts"][0]["facts"]["route"] == "direct"


def test_auto_says_which_route_won_and_why(sandbox: Sandbox) -> None:
    onnx.save(through_text(), sandbox.folder / "odd.onnx")
    onnx.save(through_text(is_plain=True), sandbox.folder / "plain.onnx")
    stand_in(sandbox, _GIVES, made_by_others(sandbox, Path("plain.onnx")))
    outcome = sandbox.run("convert", "odd.onnx", "--to", "tflite", *ONNX2TF, "--json")
    assert outcome.code == 0, outcome.stderr
    (artifact,) = outcome.document["artifacts"]
    assert artifact["facts"]["route"] == "onnx2tf"
    assert "our own route refuses the model: Cast 'to text'" in artifact["notes"][0]


def test_without_it_a_refusal_says_how_to_get_it(sandbox: Sandbox) -> None:
    onnx.save(through_text(), sandbox.folder / "odd.onnx")
    refused = sandbox.run("convert", "odd.onnx", "--to", "tflite")
    assert refused.code == 3
    assert "pip install onnx2tf" in refused.stderr
    direct = sandbox.run("convert", "odd.onnx", "--to", "tflite", "--route", "direct")
    assert direct.code == 3
    assert "onnx2tf" not in direct.stderr


def test_it_is_not_named_where_it_cannot_help(sandbox: Sandbox) -> None:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3, "H", "W"]) for name in "xy"]
    fourier = helper.make_node("DFT", ["x"], ["y"])
    unknown = helper.make_node("Unknown", ["x"], ["y"], domain="acme")
    for node, said in ((fourier, "--shape x="), (unknown, "acme::Unknown")):
        graph = helper.make_graph([node], "g", ends[:1], ends[1:])
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("acme", 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), sandbox.folder / "odd.onnx")
        refused = sandbox.run("convert", "odd.onnx", "--to", "tflite", "--no-validate")
        assert refused.code == 3, refused.stderr
        assert said in refused.stderr
        assert "onnx2tf" not in refused.stderr


@pytest.mark.parametrize(
    ("op", "opset", "said"), [("Relu", 6, "opset 6"), ("RandomNormalLike", 21, "random numbers")]
)
def test_it_is_not_named_where_nothing_could_be_proven(
    sandbox: Sandbox, op: str, opset: int, said: str
) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], "g", [x], [y])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    onnx.save(made, sandbox.folder / "odd.onnx")
    refused = sandbox.run("convert", "odd.onnx", "--to", "tflite")
    assert refused.code == 3, refused.stderr
    assert said in refused.stderr
    assert "onnx2tf" not in refused.stderr


def test_both_routes_failures_are_told_together(sandbox: Sandbox) -> None:
    onnx.save(through_text(), sandbox.folder / "odd.onnx")
    stand_in(sandbox, "sys.exit('ValueError: no such cast')")
    outcome = sandbox.run("convert", "odd.onnx", "--to", "tflite", *ONNX2TF)
    assert outcome.code == 3
    assert "Cast  'to text'" in outcome.stderr
    assert "onnx2tf cannot convert odd.onnx: ValueError: no such cast" in outcome.stderr


def through_text(*, is_plain: bool = False) -> onnx.ModelProto:
    """A product that goes through text, which ONNX Runtime does and TFLite does not; `is_plain`: without that."""
    weights = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, size]) for n, size in (("x", 4), ("y", 5))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y" if is_plain else "product"], "product"),
        helper.make_node("Cast", ["product"], ["text"], "to text", to=TensorProto.STRING),
        helper.make_node("Cast", ["text"], ["y"], "from text", to=TensorProto.FLOAT),
    ]
    graph = helper.make_graph(
        nodes[:1] if is_plain else nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(weights, "w")]
    )
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])


# ---- failures: documented code, a sentence, nothing left behind


@case(5, "peer/onnx2tf is not an executable command", "python3.12 -m venv", "pip install onnx2tf")
def no_such_command(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ROUTE


@case(5, "onnx2tf is not on PATH", "python3.12 -m venv")
def none_on_the_path(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", "--to", "tflite", "--route", "onnx2tf")


@case(2, "--precision needs our own route", "--route direct")
def an_option_that_it_does_not_honour(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return (*ROUTE, "--precision", "fp16")


@case(2, "--io needs our own route", "--route direct")
def integer_ports_which_it_does_not_make(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return (*ROUTE, "--io", "uint8")


@case(5, "has no onnxsim beside it")
def no_onnxsim(sandbox: Sandbox) -> tuple[str | Path, ...]:
    stand_in(sandbox, _GIVES, onnxsim=False)
    return ROUTE


@case(3, "onnx2tf cannot convert model.onnx: KeyError: 'perm'")
def it_gives_up(sandbox: Sandbox) -> tuple[str | Path, ...]:
    stand_in(sandbox, "raise KeyError('perm')")
    return ROUTE


@case(3, "it exits with 0 and writes no file")
def it_writes_nothing(sandbox: Sandbox) -> tuple[str | Path, ...]:
    stand_in(sandbox, "")
    return ROUTE


@case(6, "onnx2tf crashed on model.onnx (signal SIGSEGV)")
def it_crashes(sandbox: Sandbox) -> tuple[str | Path, ...]:
    stand_in(sandbox, "os.kill(os.getpid(), 11)")
    return ROUTE


@case(6, "onnx2tf hung: it did not end within 1 s", "--route direct")
def it_hangs(sandbox: Sandbox) -> tuple[str | Path, ...]:
    stand_in(sandbox, "os.fork(); time.sleep(100)")
    sandbox.patch("import onnxport.converters.tflite.second_route.onnx2tf as second\nsecond.TIME_LIMIT = 1.0")
    return ROUTE


@case(3, "onnx2tf wrote a file that is not a TFLite model")
def it_writes_rubbish(sandbox: Sandbox) -> tuple[str | Path, ...]:
    stand_in(sandbox, _GIVES, b"\x18\0\0\0TFL3 and nothing more")
    return ROUTE


@case(3, "onnx2tf wrote operators that no runtime knows: ONNX_CONV")
def it_writes_what_no_runtime_loads(sandbox: Sandbox) -> tuple[str | Path, ...]:
    foreign = made_by_others(sandbox)
    content = schema.ModelT.InitFromObj(schema.Model.GetRootAs(foreign, 0))
    content.operatorCodes[0].builtinCode = content.operatorCodes[0].deprecatedBuiltinCode = 32
    content.operatorCodes[0].customCode = "ONNX_CONV"
    builder = schema.flatbuffers.Builder(1 << 16)
    builder.Finish(content.Pack(builder), b"TFL3")
    stand_in(sandbox, _GIVES, bytes(builder.Output()))
    return ROUTE


@case(3, "onnx2tf changed the model's inputs: they are in0: [?, 8, 8, 1] in its file")
def it_converts_something_else(sandbox: Sandbox) -> tuple[str | Path, ...]:
    onnx.save(through_text(is_plain=True), sandbox.folder / "plain.onnx")
    stand_in(sandbox, _GIVES, made_by_others(sandbox))
    return ("convert", "plain.onnx", "--to", "tflite", "--route", "onnx2tf", *ONNX2TF)


@case(1, "square.tflite is not equivalent to square.onnx", "nothing was kept")
def its_answers_are_wrong(sandbox: Sandbox) -> tuple[str | Path, ...]:
    for name, scale in (("other", 1.01), ("square", 1.0)):
        onnx.save(square_model(scale), sandbox.folder / f"{name}.onnx")
    stand_in(sandbox, _GIVES, made_by_others(sandbox, Path("other.onnx")))
    return ("convert", "square.onnx", "--to", "tflite", "--route", "onnx2tf", *ONNX2TF)


@pytest.mark.parametrize("name", FAILURES)
def test_failures_end_as_documented(name: str, sandbox: Sandbox) -> None:
    assert_fails(FAILURES[name], sandbox)
