"""ONNX Runtime's WebGPU provider on a GPU, in software where there is no other: taken whole or refused by node."""

from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnxport
from onnxport.core.errors import InputError, MachineError
from onnxport.deployment.analysis import analyze_deployment
from onnxport.deployment.params import DeploymentParams
from onnxport.runtimes.registry import find

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits" / "digits.onnx"
GPU = {"runtime": "ort-webgpu"}
kind = find("ort-webgpu")
assert kind is not None
lacking = ", ".join(kind.lacking) or kind.ask_probe()
needs_device = pytest.mark.skipif(
    bool(lacking) and not os.environ.get("CI"),
    reason=f"needs {lacking}: apt-get install chromium-common, pip install 'onnxport[webgpu]'",
)
PART = """g (float[1,4,8,8] x) => (float[1,4,8,8] y) {
  [first] a = Mul (x, x)
  [hard] b = Shrink (a)
  [last] y = Add (b, x)
}"""


def saved(text: str, folder: Path, opset: int = 17, **weights: np.ndarray) -> Path:
    """Save the model that `text` says in ONNX's notation."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


@needs_device
def test_a_whole_network_is_proven_there_and_software_is_told() -> None:
    report = onnxport.validate_model(DIGITS, DIGITS, candidate_runtime=GPU, samples=1)
    assert report.verdict == "proven", report.reason
    assert "WebGPU provider" in report.candidate.runtime
    assert "software" not in report.candidate.runtime or any("in software" in note for note in report.notes)


@needs_device
def test_a_tensor_beyond_the_buffers_of_the_device_is_one_sentence(tmp_path: Path) -> None:
    """SwiftShader's hold 1 GiB; a real GPU's may hold more."""
    text = "g (float[1,1,1024,64] x) => (float[1,1,1,1] y) { a = Expand (x, sizes) y = ReduceMax (a) }"
    model = saved(text, tmp_path, sizes=np.array([1, 4100, 1024, 64]))
    with pytest.raises(MachineError, match="more bytes than one of its buffers may") as caught:
        onnxport.validate_model(model, model, candidate_runtime=GPU, samples=1)
    assert caught.value.exit_code == 6
    assert "--shape" in caught.value.fix


@needs_device
def test_a_node_left_to_the_cpu_is_named(tmp_path: Path) -> None:
    model = saved(PART, tmp_path)
    with pytest.raises(InputError, match="left to the CPU: Shrink 'hard'"):
        onnxport.validate_model(model, model, candidate_runtime=GPU)


@needs_device
@pytest.mark.parametrize("suffix", [".onnx", ".ort"])
@pytest.mark.parametrize(("opset", "helps"), [(21, False), (22, True)])
def test_an_older_opset_is_advised_only_to_a_newer_file(
    opset: int, helps: bool, suffix: str, tmp_path: Path
) -> None:
    """Shrink has no kernel there at any opset, and a file of opset 21 cannot be mended by opset 21."""
    source = saved(PART, tmp_path, opset=opset)
    model = tmp_path / f"m{suffix}"
    if suffix == ".ort":
        onnxport.convert_model(source, "ort", model, level="basic")
    with pytest.raises(InputError, match="left to the CPU") as caught:
        onnxport.validate_model(source, model, candidate_runtime=GPU)
    assert ("--opset 21" in caught.value.fix) is helps
    assert "onnxport extract" in caught.value.fix


@needs_device
@pytest.mark.parametrize("only", [True, False])
def test_an_ort_file_with_a_node_on_the_cpu_is_refused(only: bool, tmp_path: Path) -> None:
    """ONNX Runtime itself loads it without a word, and runs a file without any node on the GPU."""
    text = "g (float[1,4] x) => (float[1,4] y) { [hard] y = Shrink (x) }" if only else PART
    source = saved(text, tmp_path)
    onnxport.convert_model(source, "ort", tmp_path / "m.ort")
    with pytest.raises(InputError, match="does not run whole"):
        onnxport.validate_model(source, tmp_path / "m.ort", candidate_runtime=GPU)


@needs_device
def test_a_file_fused_for_the_cpu_is_refused_and_a_basic_one_runs(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).normal(size=(8, 4, 3, 3)).astype(np.float32)
    text = "g (float[1,4,8,8] x) => (float[1,8,6,6] y) { a = Conv (x, w) y = Relu (a) }"
    source = saved(text, tmp_path, w=weights)
    onnxport.convert_model(source, "ort", tmp_path / "all.ort")
    with pytest.raises(InputError, match="fused for the CPU"):
        onnxport.validate_model(source, tmp_path / "all.ort", candidate_runtime=GPU)
    onnxport.convert_model(source, "ort", tmp_path / "basic.ort", level="basic")
    report = onnxport.validate_model(source, tmp_path / "basic.ort", candidate_runtime=GPU)
    assert report.verdict == "proven", report.reason


@needs_device
def test_runs_on_names_the_nodes_and_the_opset_that_mends_them(tmp_path: Path) -> None:
    text = "g (float[1,4] x) => (float[1,4] y) { a = Mul (x, x) [c] y = Cos (a) }"
    asked = DeploymentParams(runs_on="ort-webgpu")
    (found,) = analyze_deployment(saved(text, tmp_path, opset=22), asked).placements
    assert (found.extent, found.taken, found.nodes) == ("part", 1, 2)
    assert [(each.op, each.node) for each in found.fallbacks] == [("Cos", "c")]
    assert found.change is not None
    assert "--opset 21" in found.change.command
    (whole,) = analyze_deployment(saved(text, tmp_path, opset=17), asked).placements
    assert (whole.extent, whole.taken, whole.fallbacks) == ("all", 2, ())


@needs_device
def test_bench_says_that_a_device_in_software_measures_no_speed() -> None:
    found = onnxport.bench_models([DIGITS], runtimes=("ort-webgpu",), runs=2, shape={"image": (1, 1, 8, 8)})
    assert "software" not in found.rows[0].ran_on or any("speed" in note for note in found.notes)


def test_without_a_gpu_nothing_runs_on_the_cpu_instead(tmp_path: Path) -> None:
    """ONNX Runtime's Python package opens the model on the CPU and prints so."""
    if lacking:
        pytest.skip(f"needs {lacking}")
    code = (
        "from pathlib import Path; from onnxport.core.errors import MissingDependencyError\n"
        "from onnxport.runtimes.ort import webgpu\n"
        "webgpu.open_vulkan = lambda folder: None\n"
        f"try: webgpu.WebgpuRuntime(Path({str(DIGITS)!r}))\n"
        "except MissingDependencyError as error: print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if ctypes.util.find_library("vulkan"):
        pytest.skip("the system has a Vulkan of its own")
    assert "found no GPU" in ran.stdout, ran.stdout + ran.stderr
