"""`onnxport quantize` through the command in a fresh process: samples of every kind, reports, interruption."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import safetensors.numpy
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from onnxport.core import errors
from tests.cli.sandbox import DIGITS, Sandbox
from tests.cli.test_interruption import children_of, wait_until_gone

INT8 = ("quantize", "model.onnx", "--int8", "--calib")
IMAGES = np.load(DIGITS.with_name("test.npz"))["image"]
TIMEOUT = 60.0


def artifact(sandbox: Sandbox, *arguments: str | Path) -> dict[str, Any]:
    """The run's one artefact in its report; the input is found untouched."""
    before = sandbox.model.read_bytes()
    outcome = sandbox.run(*arguments, "--json", "--no-latency")
    assert outcome.code == 0, outcome.stderr
    assert sandbox.model.read_bytes() == before
    (found,) = outcome.document["artifacts"]
    assert isinstance(found, dict)
    return found


def npz(folder: Path, count: int, start: int = 0) -> Path:
    folder.mkdir(exist_ok=True)
    for number in range(start, start + count):
        np.savez(folder / f"{number}.npz", image=IMAGES[number : number + 1])
    return folder


def ops(path: Path) -> dict[str, int]:
    nodes = onnx.load(path).graph.node
    return {name: sum(node.op_type == name for node in nodes) for name in {node.op_type for node in nodes}}


def fed(found: Mapping[str, Any]) -> list[str]:
    return [each["label"] for each in found["report"]["fed"]]


# ---- what becomes of samples


def test_digits_become_integers_that_answer_alike_beside_the_model(sandbox: Sandbox) -> None:
    found = artifact(sandbox, *INT8, npz(sandbox.folder / "samples", 30))
    small = sandbox.folder / "model_int8.onnx"
    assert small.stat().st_size < sandbox.model.stat().st_size / 2
    assert ops(small)["QuantizeLinear"] >= 3
    assert found["report"]["verdict"] == "proven"
    labels = fed(found)
    assert len(labels) == 6
    assert found["facts"]["lint"]["samples"] == 24, "calibration does not see what the judge is fed"
    assert found["facts"]["lint"]["findings"] == []


def test_every_kind_of_file_gives_the_same_bytes(sandbox: Sandbox) -> None:
    folder = sandbox.folder / "mixed"
    folder.mkdir()
    for number in range(12):
        image = IMAGES[number : number + 1]
        if number % 4 == 0:
            np.savez(folder / f"{number}.npz", image=image)
        elif number % 4 == 1:
            np.save(folder / f"{number}.npy", image)
        elif number % 4 == 2:
            safetensors.numpy.save_file({"image": image}, folder / f"{number}.safetensors")
        else:
            data_set = folder / f"test_data_set_{number}"
            data_set.mkdir()
            (data_set / "input_0.pb").write_bytes(numpy_helper.from_array(image).SerializeToString())
    rows = sandbox.folder / "rows.npz"
    order = [number for number in range(12) if number % 4 != 3] + [3, 7, 11]
    np.savez(rows, image=IMAGES[order], label=np.arange(12))
    artifact(sandbox, *INT8, folder, "--inputs", rows, "-o", "mixed.onnx")
    artifact(sandbox, *INT8, rows, "--inputs", folder, "-o", "rows.onnx")
    assert (sandbox.folder / "mixed.onnx").read_bytes() == (sandbox.folder / "rows.onnx").read_bytes()


def test_images_are_prepared_as_the_folder_says(sandbox: Sandbox) -> None:
    folder = sandbox.folder / "photos"
    folder.mkdir()
    for number in range(12):
        pixels = np.rint(IMAGES[number, 0] * 255).astype(np.uint8)
        Image.fromarray(pixels).resize((16, 16), Image.Resampling.NEAREST).save(folder / f"{number}.png")
    (folder / "preprocess.yaml").write_text("resize: 8x8\ninterpolation: nearest\nscale: 1/255\n")
    found = artifact(sandbox, *INT8, folder)
    assert found["facts"]["lint"]["ranges"] == {"image": [0.0, pytest.approx(1.0)]}
    assert any(note.startswith("preprocessing of images: resize=8x8") for note in found["report"]["notes"])


def test_preprocessing_on_the_command_line_is_for_images(sandbox: Sandbox) -> None:
    arrays = sandbox.run(*INT8, npz(sandbox.folder / "arrays", 2), "--preprocess", "scale=1/16")
    assert arrays.code == 2
    words = " ".join(arrays.stderr.split())
    assert "--preprocess applies to images and audio" in words
    assert "leave it out: arrays are fed as they are" in words
    folder = sandbox.folder / "photos"
    folder.mkdir()
    for number in range(2):
        pixels = np.rint(IMAGES[number, 0] * 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    images = sandbox.run(*INT8, folder, "--preprocess", "scale=1/255", "--no-validate", "--json")
    assert images.code == 0, images.stderr
    (found,) = images.document["artifacts"]
    assert found["facts"]["lint"]["ranges"] == {"image": [0.0, pytest.approx(1.0)]}


def test_bytes_fed_by_mistake_are_noted_and_fail_with_strict(sandbox: Sandbox) -> None:
    folder = sandbox.folder / "bytes"
    folder.mkdir()
    for number in range(20):
        np.save(folder / f"{number}.npy", IMAGES[number : number + 1] * 255)
    found = artifact(sandbox, *INT8, folder)
    (note,) = [note for note in found["notes"] if note.startswith("samples: ")]
    assert "'image' has values from 0 to 255" in note
    assert "numbers 0..1" in note
    strict = sandbox.run(*INT8, folder, "--strict", "-o", "strict.onnx")
    assert strict.code == errors.USAGE
    assert "the samples in bytes look wrong" in strict.stderr.replace(f"{sandbox.folder}/", "")
    assert not (sandbox.folder / "strict.onnx").exists()


def test_more_samples_than_are_held_out_are_not_judged_without_a_word(sandbox: Sandbox) -> None:
    """A user gave 540 rows for calibration and proof, asked for all, and read a verdict on 20."""
    found = artifact(sandbox, *INT8, npz(sandbox.folder / "many", 60), "--samples", "50")
    assert len(fed(found)) == 12
    assert any("12 of 60 samples are held out" in note for note in found["report"]["notes"])


def test_few_samples_serve_twice_and_the_report_says_so(sandbox: Sandbox) -> None:
    found = artifact(sandbox, *INT8, npz(sandbox.folder / "few", 4))
    assert len(fed(found)) == found["facts"]["lint"]["samples"] == 4
    assert any("validated on the same 4 samples" in note for note in found["report"]["notes"])
    assert any(note.startswith("samples: 4 samples say little") for note in found["notes"])


def test_inputs_of_his_own_leave_all_samples_to_calibration(sandbox: Sandbox) -> None:
    calib, inputs = npz(sandbox.folder / "calib", 15), npz(sandbox.folder / "inputs", 5, start=100)
    found = artifact(sandbox, *INT8, calib, "--inputs", inputs, "--samples", "3")
    assert found["facts"]["lint"]["samples"] == 15
    assert fed(found) == ["100.npz", "101.npz", "102.npz"]


def test_the_limit_and_the_seed_draw_the_samples(sandbox: Sandbox) -> None:
    calib = npz(sandbox.folder / "calib", 40)
    made = {}
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        limit = ("--calib-samples", "8", "--seed", seed, "-o", f"{name}.onnx")
        found = artifact(sandbox, *INT8, calib, *limit)
        assert found["facts"]["lint"]["samples"] == 8
        # The seed is part of the provenance, so of the bytes: what calibration found is compared.
        made[name] = scales(sandbox.folder / f"{name}.onnx")
    assert made["a"] == made["b"] != made["c"]


def scales(path: Path) -> dict[str, float]:
    graph = onnx.load(path).graph
    known = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    used = [node for node in graph.node if node.op_type == "QuantizeLinear"]
    return {node.input[0]: float(known[node.input[1]]) for node in used}


def test_an_old_model_is_lifted_and_that_is_said(sandbox: Sandbox) -> None:
    weights = np.random.default_rng(0).standard_normal((10, 64)).astype(np.float32)
    nodes = [
        helper.make_node("Flatten", ["image"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "w", "b"], ["y"], "gemm", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "old",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 10])],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.zeros(10, np.float32), "b")],
    )
    old = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=4)
    onnx.save(old, sandbox.model)
    found = artifact(sandbox, *INT8, npz(sandbox.folder / "samples", 12))
    assert any(note.startswith("lifted from opset 9 to 14") for note in found["notes"])


def recurrent(folder: Path) -> None:
    """y, hn = a layer over x and its own state h."""
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "input"),
        helper.make_node("MatMul", ["h", "u"], ["b"], "state"),
        helper.make_node("Add", ["a", "b"], ["sum"], "sum"),
        helper.make_node("Tanh", ["sum"], ["hn"], "next"),
        helper.make_node("MatMul", ["hn", "v"], ["y"], "output"),
    ]
    shapes = {"w": (8, 16), "u": (16, 16), "v": (16, 4)}
    tensors = [
        numpy_helper.from_array((0.3 * random.standard_normal(shape)).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", size]) for name, size in sizes]
        for sizes in ((("x", 8), ("h", 16)), (("y", 4), ("hn", 16)))
    ]
    graph = helper.make_graph(nodes, "recurrent", *ends, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "model.onnx")


def test_a_state_that_files_lack_begins_with_zeros_and_that_is_said(sandbox: Sandbox) -> None:
    recurrent(sandbox.folder)
    folder = sandbox.folder / "samples"
    folder.mkdir()
    random = np.random.default_rng(1)
    for number in range(12):
        np.save(folder / f"{number}.npy", random.standard_normal((number % 3 + 1, 8)).astype(np.float32))
    found = artifact(sandbox, *INT8, folder, "--accept-quality", "--budget", "sqnr=0")
    assert any(note.startswith("samples: the state 'h' began with zeros") for note in found["notes"])


def test_a_file_that_lacks_an_input_is_refused_where_values_are_measured_on_it(sandbox: Sandbox) -> None:
    recurrent(sandbox.folder)
    (sandbox.folder / "samples").mkdir()
    np.savez(sandbox.folder / "samples" / "a.npz", h=np.zeros((1, 16), np.float32))
    outcome = sandbox.run("quantize", "model.onnx", "--fp16", "--inputs", "samples")
    assert outcome.code == errors.BAD_INPUT
    assert "a.npz lacks the input 'x': it has 'h'" in outcome.stderr


# ---- interruption


def started(sandbox: Sandbox, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        sandbox.command(*INT8, "samples", *options),
        cwd=sandbox.folder,
        env=sandbox.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def slow_samples(sandbox: Sandbox) -> None:
    """Samples that take a while to read, as photos do."""
    npz(sandbox.folder / "samples", 40)
    sandbox.patch(
        "import time\n"
        "import onnxport.samples.readers as readers\n"
        "read = readers.SampleFile.load\n"
        "readers.SampleFile.load = lambda self: time.sleep(0.1) or read(self)\n"
    )


def wait_for_calibration(process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + TIMEOUT
    assert process.stderr is not None
    while "calibrate" not in process.stderr.readline():
        assert process.poll() is None, "the run ended before it could be interrupted"
        assert time.monotonic() < deadline


@pytest.mark.parametrize("options", [(), ("--jobs", "2")], ids=["alone", "jobs"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_during_calibration_leaves_nothing(
    number: signal.Signals, options: tuple[str, ...], sandbox: Sandbox
) -> None:
    slow_samples(sandbox)
    before = sandbox.contents()
    with started(sandbox, *options) as process:
        wait_for_calibration(process)
        time.sleep(0.5)
        children = children_of(process.pid)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=TIMEOUT)
    assert process.returncode == errors.INTERRUPTED
    assert stderr.endswith("error: interrupted\nexit 130\n")
    assert "Traceback" not in stderr
    assert without_caches(sandbox.contents()) == without_caches(before)
    wait_until_gone(children)


def test_a_killed_calibration_leaves_nothing_that_looks_finished(sandbox: Sandbox) -> None:
    slow_samples(sandbox)
    with started(sandbox) as process:
        wait_for_calibration(process)
        time.sleep(0.5)
        process.kill()
        process.communicate(timeout=TIMEOUT)
    assert {path.name for path in sandbox.folder.glob("*.onnx")} == {"model.onnx"}
    shutil.rmtree(sandbox.folder.parent / "hooks")
    artifact(sandbox, *INT8, "samples")
    assert not list(sandbox.folder.glob(".onnxport-*")), "the next run sweeps the folder that was left"


def without_caches(contents: Mapping[str, bytes | None]) -> dict[str, bytes | None]:
    return {name: data for name, data in contents.items() if "__pycache__" not in name}


# ---- the report


def test_report_tells_what_was_done_in_every_form(sandbox: Sandbox) -> None:
    npz(sandbox.folder / "samples", 30)
    outcome = sandbox.run(*INT8, "samples", "--report", "run.json", "--report", "run.md")
    assert outcome.code == 0, outcome.stderr
    assert "model_int8.onnx" in outcome.stdout
    document = json.loads((sandbox.folder / "run.json").read_text())
    (found,) = document["artifacts"]
    judged = json.dumps(found["report"]["judgements"])
    assert "sqnr" in judged.lower(), "what the integers cost is measured on the saved file"
    assert "SQNR" in (sandbox.folder / "run.md").read_text()
