"""`onnxport optimize` from the command line: what it makes, what it says, and every way in which it refuses."""

from __future__ import annotations

import resource
import signal
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from fixtures import reality
from onnxport.core import errors
from onnxport.formats.model import Model
from tests.cli.failing import Case, assert_fails, registering
from tests.cli.sandbox import Sandbox, unprivileged
from tests.cli.test_interruption import wait_for_staging

CASES: dict[str, Case] = {}
case = registering(CASES)

WIDTH = 64
# Has weights of any size stay beside the model.
LARGE = "import onnxport.formats.model\nonnxport.formats.model._APART = 0\n"


def chain(folder: Path, *, data: str = "chain.bin") -> Path:
    """y = relu(x w); an input `unread` goes nowhere, and w lies beside the model."""
    random = np.random.default_rng(0)
    weights = numpy_helper.from_array(random.standard_normal((WIDTH, WIDTH)).astype(np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", WIDTH]) for name in ("x", "unread", "y")
    ]
    graph = helper.make_graph(nodes, "chain", ends[:2], ends[2:], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=7)
    onnx.save(model, folder / "chain.onnx", save_as_external_data=True, location=data, size_threshold=0)
    return folder / "chain.onnx"


def test_all_at_once_is_proven_and_said_in_one_line(sandbox: Sandbox) -> None:
    chain(sandbox.folder)
    before = sandbox.contents()
    sandbox.patch(LARGE)
    asked = ("--opset", "latest", "--prune-unused", "--shape", "x=2,64", "-v", "--report", "out.json")
    done = sandbox.run("optimize", "chain.onnx", "-o", "out.onnx", *asked)
    assert done.code == 0, done.stderr
    line, *rest = done.stdout.splitlines()
    assert line.startswith("out.onnx   nodes 2, opset 12 -> 2")
    assert "   proven: " in line
    assert "passes" in rest
    assert "note: fixed for these sizes alone: x[0] N = 2, unread[0] N = 2" in done.stderr
    assert "note: the input 'unread' is removed: no output depends on it" in done.stderr
    made = Model.load(sandbox.folder / "out.onnx")
    assert [(spec.name, spec.shape) for spec in made.inputs] == [("x", (2, WIDTH))]
    assert [file.name for file in made.artifact.companions] == ["out.onnx.data"]
    after = sandbox.contents()
    assert {name: after[name] for name in before} == before
    assert sorted(set(after) - set(before)) == ["work/out.json", "work/out.onnx", "work/out.onnx.data"]


def test_a_float16_model_answers_both_questions_and_a_rejected_one_finds_its_weights(
    sandbox: Sandbox,
) -> None:
    chain(sandbox.folder)
    sandbox.patch(LARGE)
    done = sandbox.run(
        "optimize",
        "chain.onnx",
        "--fp16",
        "--io",
        "fp16",
        "--budget",
        "sqnr=150",
        "--keep-rejected",
        "--json",
    )
    assert done.code == errors.NOT_EQUIVALENT, done.stderr
    (artifact,) = done.document["artifacts"]
    assert artifact["report"]["verdict"] == "over budget"
    assert [each["question"] for each in artifact["report"]["judgements"]][:2] == ["fidelity", "quality"]
    assert artifact["report"]["judgements"][0]["verdict"] == "proven"
    made = Model.load(sandbox.folder / "chain_optimized.rejected.onnx")
    assert {spec.dtype for spec in (*made.inputs, *made.outputs)} == {"float16"}
    assert [file.name for file in made.artifact.companions] == ["chain_optimized.rejected.onnx.data"]
    assert made.artifact.digest() == artifact["digest"]
    assert [file["path"].rpartition("/")[2] for file in artifact["companions"]] == [
        "chain_optimized.rejected.onnx.data"
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_leaves_nothing(number: signal.Signals, sandbox: Sandbox) -> None:
    chain(sandbox.folder)
    before = sandbox.contents()
    with subprocess.Popen(
        sandbox.command("optimize", "chain.onnx"),
        cwd=sandbox.folder,
        env=sandbox.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_for_staging(sandbox, process)
        process.send_signal(number)
        process.communicate(timeout=60)
    left = {name: data for name, data in sandbox.contents().items() if "/.onnxport-" not in name}
    assert left == before
    if number == signal.SIGINT:
        assert process.returncode == errors.INTERRUPTED
        assert sandbox.contents() == before, "what was killed is swept by the next run"


# ---- what is asked for


@case(2, "--opset: 6 is not allowed", "give 11 to 26, or latest")
def opset_that_nobody_proves(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("optimize", "model.onnx", "--opset", "6")


@case(2, "the shape 1,3,8,8 contradicts input image: float32[N, 1, 8, 8]")
def sizes_that_do_not_fit(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("optimize", "model.onnx", "--shape", "image=1,3,8,8")


@case(3, "model.onnx is quantized already", "1 DequantizeLinear")
def float16_of_a_quantized_model(sandbox: Sandbox) -> tuple[str | Path, ...]:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (uint8[N] x, float s) => (float[N] y) { y = DequantizeLinear (x, s) }"""
    onnx.save(onnx.parser.parse_model(text), sandbox.model)
    return ("optimize", "model.onnx", "--fp16")


# ---- files


@case(2, "the output model.onnx is the input")
def output_in_place(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("optimize", "model.onnx", "-o", "model.onnx")


@case(2, "would overwrite out.onnx.data, which has weights of the input", "give -o another name")
def output_whose_data_file_is_the_inputs(sandbox: Sandbox) -> tuple[str | Path, ...]:
    chain(sandbox.folder, data="out.onnx.data")
    return ("optimize", "chain.onnx", "-o", "out.onnx")


@case(4, "chain.bin', which is too short", "truncated")
def damaged_data(sandbox: Sandbox) -> tuple[str | Path, ...]:
    chain(sandbox.folder)
    (sandbox.folder / "chain.bin").write_bytes(b"\0" * 100)
    return ("optimize", "chain.onnx")


@case(4, "ONNX Runtime cannot load model.onnx", "Unknown", "--no-validate writes a result unproven")
def operator_that_onnx_runtime_does_not_know(sandbox: Sandbox) -> tuple[str | Path, ...]:
    text = """<ir_version: 8, opset_import: ["": 17, "com.example": 1]>
    g (float[N] x) => (float[N] y) { y = com.example.Unknown (x) }"""
    onnx.save(onnx.parser.parse_model(text), sandbox.model)
    return ("optimize", "model.onnx")


@case(6, "out.onnx cannot be written", "Permission denied", before_exec=unprivileged)
def output_in_a_folder_of_others(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (sandbox.folder / "theirs").mkdir(mode=0o500)
    return ("optimize", "model.onnx", "-o", "theirs/out.onnx")


def small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


@case(6, "out.onnx cannot be written", "a file size limit is set", before_exec=small_files)
def disk_without_room(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("optimize", "model.onnx", "-o", "out.onnx", "--no-validate")


@pytest.mark.parametrize("name", CASES)
def test_refuses_in_a_sentence_and_leaves_nothing(name: str, sandbox: Sandbox) -> None:
    assert_fails(CASES[name], sandbox)


def test_extended_fuses_the_attention_of_a_bert_with_any_mask(sandbox: Sandbox) -> None:
    """ONNX Runtime's tool takes the mask's sum for a length by default, which padding on the left shows."""
    source = reality.path("paraphrase-minilm/L3_v2.onnx")
    done = sandbox.run("optimize", source, "--level", "extended", "-o", "fused.onnx", "--no-validate")
    assert done.code == 0, done.stderr
    made = onnx.load(sandbox.folder / "fused.onnx", load_external_data=False)
    assert [node.op_type for node in made.graph.node].count("Attention") == 3
    random = np.random.default_rng(0)
    feeds = {
        "input_ids": random.integers(1000, 20000, (2, 9)),
        "attention_mask": np.array([[0, 0, 0, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0, 0, 0]]),
    }
    name = "onnx::Shape_422"  # of every token
    expected, given = (
        onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run([name], feeds)[0]
        for path in (source, sandbox.folder / "fused.onnx")
    )
    kept = feeds["attention_mask"] == 1
    np.testing.assert_allclose(given[kept], expected[kept], rtol=1e-3, atol=1e-4)
