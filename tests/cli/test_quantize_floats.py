"""`onnxport quantize --fp16` and `--bf16`, and `convert --to ort --precision fp16`, from the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.formats.model import Model
from tests.cli.sandbox import Sandbox


def stored(path: Path) -> dict[str, int]:
    return {tensor.name: tensor.data_type for tensor in onnx.load(path).graph.initializer}


def test_a_float16_model_is_proven_and_half_as_large(sandbox: Sandbox) -> None:
    done = sandbox.run("quantize", sandbox.model, "--fp16", "--json")
    assert done.code == 0, done.stderr
    (artifact,) = done.document["artifacts"]
    assert artifact["report"]["verdict"] == "proven"
    assert artifact["report"]["candidate"]["precision"] == "float16"
    questions = [each["question"] for each in artifact["report"]["judgements"]]
    assert questions == ["fidelity", "quality", "translation"]
    made = sandbox.folder / "model_fp16.onnx"
    assert made.stat().st_size < 0.6 * sandbox.model.stat().st_size
    before, after = artifact["facts"]["weights"].values()
    assert after == Model.load(made).weight_bytes < 0.51 * before
    assert [spec.dtype for spec in Model.load(made).inputs] == ["float32"]


def test_inputs_and_outputs_in_float16_are_proven_against_float32(sandbox: Sandbox) -> None:
    done = sandbox.run("quantize", sandbox.model, "--fp16", "--io", "fp16", "-o", "half.onnx", "--json")
    assert done.code == 0, done.stderr
    assert done.document["artifacts"][0]["report"]["verdict"] == "proven"
    made = Model.load(sandbox.folder / "half.onnx")
    assert {spec.dtype for spec in (*made.inputs, *made.outputs)} == {"float16"}
    again = sandbox.run("validate", sandbox.model, "half.onnx")
    assert again.code == 0, again.stderr


def overflowing(folder: Path) -> Path:
    """x times 100, and back: beyond float16 for inputs beyond 655, which nobody draws for it."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["mixed"]),
        helper.make_node("Mul", ["mixed", "many"], ["large"]),
        helper.make_node("Div", ["large", "many"], ["y"]),
    ]
    constants = {"w": np.eye(64, dtype=np.float32), "many": np.array(100, np.float32)}
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    path = folder / "overflowing.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.mark.parametrize("option", ["--inputs", "--calib"])
def test_the_users_samples_tell_what_overflows(option: str, sandbox: Sandbox) -> None:
    samples = sandbox.folder / "samples"
    samples.mkdir()
    for number in range(3):
        x = np.random.default_rng(number).uniform(500, 1000, (1, 64)).astype(np.float32)
        np.save(samples / f"{number}.npy", x)
    model = overflowing(sandbox.folder)
    without = sandbox.run("quantize", model, "--fp16", "-o", "without.onnx", "--json")
    assert stored(sandbox.folder / "without.onnx")["many"] == TensorProto.FLOAT16, without.stderr
    done = sandbox.run("quantize", model, "--fp16", option, "samples", "-o", "with.onnx", "--json")
    assert done.code == 0, done.stderr
    assert stored(sandbox.folder / "with.onnx") == {"w": TensorProto.FLOAT16, "many": TensorProto.FLOAT}
    (artifact,) = done.document["artifacts"]
    assert artifact["facts"]["float32 nodes"] == {"values go beyond float16": 2}
    assert any("values go beyond float16 (Mul 'large', Div 'y')" in note for note in artifact["notes"])


def test_bfloat16_stores_weights_and_says_so(sandbox: Sandbox) -> None:
    done = sandbox.run("quantize", sandbox.model, "--bf16", "--json")
    assert done.code == 0, done.stderr
    (artifact,) = done.document["artifacts"]
    assert artifact["report"]["verdict"] == "proven"
    assert artifact["report"]["candidate"]["precision"] == "bfloat16 weights"
    assert "ONNX Runtime's CPU has no arithmetic in bfloat16" in artifact["notes"][0]
    made = sandbox.folder / "model_bf16.onnx"
    assert TensorProto.BFLOAT16 in stored(made).values()
    assert made.stat().st_size < 0.6 * sandbox.model.stat().st_size


def test_float16_at_the_border_goes_with_float16_alone(sandbox: Sandbox) -> None:
    done = sandbox.run("quantize", sandbox.model, "--bf16", "--io", "fp16")
    assert done.code == 2
    assert "--io has no effect with --bf16" in done.stderr


def test_a_float16_model_is_not_converted_again(sandbox: Sandbox) -> None:
    assert sandbox.run("quantize", sandbox.model, "--fp16", "--io", "fp16", "-o", "half.onnx").code == 0
    done = sandbox.run("quantize", "half.onnx", "--fp16")
    assert done.code == 3
    assert (
        "has no float32 values to convert to float16: its floats are float16; use it as it is" in done.stderr
    )
    assert not (sandbox.folder / "half_fp16.onnx").exists()


def test_an_ort_file_in_float16_is_proven_and_smaller(sandbox: Sandbox) -> None:
    done = sandbox.run("convert", sandbox.model, "--to", "ort", "--precision", "fp16", "--json")
    assert done.code == 0, done.stderr
    (artifact,) = done.document["artifacts"]
    assert artifact["report"]["verdict"] == "proven"
    assert artifact["report"]["candidate"]["precision"] == "float16"
    assert any("basic graph optimization" in note for note in artifact["notes"])
    assert sandbox.run("convert", sandbox.model, "--to", "ort", "-o", "wide.ort").code == 0
    half, wide = ((sandbox.folder / name).stat().st_size for name in ("model.ort", "wide.ort"))
    weights = Model.load(sandbox.model).weight_bytes
    assert half < wide - 0.3 * weights


def test_values_beyond_float16_are_looked_for_on_the_users_inputs(sandbox: Sandbox) -> None:
    folder = sandbox.folder / "large"
    folder.mkdir()
    np.savez(folder / "0.npz", image=np.full((1, 1, 8, 8), 1e6, np.float32))
    done = sandbox.run("convert", sandbox.model, "--to", "ort", "--precision", "fp16", "--inputs", folder)
    assert done.code == 3
    assert "can be float16: values go beyond float16 (Conv " in " ".join(done.stderr.split())
