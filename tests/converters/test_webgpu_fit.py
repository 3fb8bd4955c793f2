"""`--to ort --fit webgpu`: convolutions that WebGPU computes wrongly are right; nodes on the CPU are refused."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

import onnxport
from onnxport.converters import webgpu_fit
from onnxport.core.errors import CannotConvertError
from onnxport.formats.model import Model
from onnxport.runtimes.registry import find

kind = find("ort-webgpu")
assert kind is not None
lacking = ", ".join(kind.lacking) or kind.ask_probe()
needs_device = pytest.mark.skipif(
    bool(lacking) and not os.environ.get("CI"),
    reason=f"needs {lacking}: apt-get install chromium-common, pip install 'onnxport[webgpu]'",
)
CONV = "g (float[1,%d,6,6] x) => (float[1,8,6,6] y) { a = Conv <pads = [1,1,1,1]> (x, w) y = Relu (a) }"


# What WebGPU lacks, in ONNX's notation.
REWRITTEN = {
    "sum": "g (float[2,3] x) => (float[2,3] y) { y = Sum (x, x, x) }",
    "mean": "g (float[2,3] x) => (float[2,3] y) { a = Abs (x) y = Mean (x, a) }",
    "round": "g (float[2,3] x) => (float[2,3] y) <float h = {0.5}> { a = Floor (x) b = Add (a, h) y = Round (b) }",
    "sign": "g (float[2,3] x) => (float[2,3] y) { y = Sign (x) }",
    "shrink": "g (float[2,3] x) => (float[2,3] y) { y = Shrink <lambd = 0.5> (x) }",
    "or": "g (float[2,3] x) => (bool[2,3] y) <float h = {0.5}, float l = {-0.5}> "
    "{ a = Greater (x, h) b = Less (x, l) y = Or (a, b) }",
    "xor": "g (float[2,3] x) => (bool[2,3] y) <float h = {0.5}> { a = Greater (x, h) b = Abs (x) "
    "c = Greater (b, h) y = Xor (a, c) }",
    "is nan": "g (float[2,3] x) => (bool[2,3] y) { a = Sqrt (x) y = IsNaN (a) }",
    "bool moved": "g (float[2,3] x) => (bool[6,1] y) <float h = {0.5}, int64[2] s = {1,6}> "
    "{ a = Greater (x, h) b = Transpose (a) c = Reshape (b, s) y = Transpose (c) }",
    "bool joined": "g (float[2,3] x) => (bool[4,3] y) <float h = {0.5}> "
    "{ a = Greater (x, h) b = Less (x, h) y = Concat <axis = 0> (a, b) }",
    "int64": "g (int64[2,3] x) => (int64[2,3] y) { a = Mul (x, x) y = Add (a, x) }",
}

QUANTIZED = {
    "uint8": "g (float[2,3] x) => (uint8[2,3] y) <float s = {0.3}, uint8 z = {100}> { y = QuantizeLinear (x, s, z) }",
    "int8": "g (float[2,3] x) => (float[2,3] y) <float[3] s = {0.3, 0.1, 0.02}, int8[3] z = {5, -3, 100}> "
    "{ a = QuantizeLinear <axis = 1> (x, s, z) y = DequantizeLinear <axis = 1> (a, s, z) }",
}


def saved(text: str, folder: Path, opset: int = 17, **weights: np.ndarray) -> Path:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]>\n{text}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


@needs_device
@pytest.mark.parametrize("channels", [6, pytest.param(33, marks=pytest.mark.slow)])
def test_a_convolution_that_webgpu_computes_wrongly_is_proven_there(channels: int, tmp_path: Path) -> None:
    weights = np.random.default_rng(0).normal(size=(8, channels, 3, 3)).astype(np.float32)
    source = saved(CONV % channels, tmp_path, w=weights)
    gpu = {"runtime": "ort-webgpu"}
    assert (
        onnxport.validate_model(source, source, candidate_runtime=gpu, samples=1).verdict == "not equivalent"
    )
    done = onnxport.convert_model(source, "ort", tmp_path / "m.ort", fit="webgpu")
    assert any("WebGPU provider" in note and "proven" in note for note in done.report.notes), (
        done.report.notes
    )
    after = onnxport.validate_model(source, tmp_path / "m.ort", candidate_runtime=gpu, samples=1)
    assert after.verdict == "proven", after.reason


@needs_device
@pytest.mark.parametrize("name", REWRITTEN)
def test_what_webgpu_lacks_is_written_otherwise_and_proven_there(name: str, tmp_path: Path) -> None:
    source = saved(REWRITTEN[name], tmp_path)
    gpu = {"runtime": "ort-webgpu"}
    inputs = None
    if name == "is nan":  # generated inputs keep to the domain of Sqrt
        inputs = tmp_path / "x.npz"
        np.savez(inputs, x=np.array([[1, -1, 4], [-2, 0, 9]], np.float32))
    done = onnxport.convert_model(source, "ort", tmp_path / "m.ort", fit="webgpu", inputs=inputs)
    assert any("WebGPU provider" in note and "proven" in note for note in done.report.notes), (
        done.report.notes
    )
    report = onnxport.validate_model(source, tmp_path / "m.ort", candidate_runtime=gpu, inputs=inputs)
    assert report.verdict == "proven", report.reason


@needs_device
@pytest.mark.parametrize("name", QUANTIZED)
def test_integers_of_8_bits_are_those_of_onnx_runtime(name: str, tmp_path: Path) -> None:
    from onnxport.runtimes.ort.webgpu import WebgpuRuntime

    source = saved(QUANTIZED[name], tmp_path)
    onnxport.convert_model(source, "ort", tmp_path / "m.ort", fit="webgpu")
    x = np.random.default_rng(0).normal(0, 20, (2, 3)).astype(np.float32)
    (expected,) = onnxruntime.InferenceSession(source).run(None, {"x": x})
    with WebgpuRuntime(tmp_path / "m.ort") as runtime:
        np.testing.assert_array_equal(runtime.run({"x": x})["y"], expected)


@needs_device
def test_int64_kernels_are_switched_on_where_needed_and_told(tmp_path: Path) -> None:
    source = saved(REWRITTEN["int64"], tmp_path)
    gpu = {"runtime": "ort-webgpu"}
    report = onnxport.validate_model(source, source, candidate_runtime=gpu)
    assert report.verdict == "proven"
    assert any("enableInt64" in note for note in report.notes), report.notes
    plain = saved(REWRITTEN["sum"].replace("Sum (x, x, x)", "Add (x, x)"), tmp_path)
    report = onnxport.validate_model(plain, plain, candidate_runtime=gpu)
    assert not any("enableInt64" in note for note in report.notes), report.notes


@needs_device
def test_halves_are_rounded_to_even_numbers_as_onnx_does(tmp_path: Path) -> None:
    source = saved("g (float[9] x) => (float[9] y) { y = Round (x) }", tmp_path)
    onnxport.convert_model(source, "ort", tmp_path / "m.ort", fit="webgpu")
    x = np.array([0.5, 1.5, -2.5, -0.5, 8388607.5, -8388609, 3e9, 0.49999997, -1.2], np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    gpu = {"runtime": "ort-webgpu"}
    report = onnxport.validate_model(
        source, tmp_path / "m.ort", candidate_runtime=gpu, inputs=tmp_path / "x.npz"
    )
    assert report.verdict == "proven", report.reason


@needs_device
def test_a_newer_opset_is_lowered_to_what_webgpu_has(tmp_path: Path) -> None:
    source = saved(
        "g (float[2,3] x) => (float[3,2] y) { a = HardSigmoid (x) y = Transpose (a) }", tmp_path, opset=22
    )
    done = onnxport.convert_model(source, "ort", tmp_path / "m.ort", fit="webgpu")
    notes = done.run.artifacts[0].notes
    assert any("opset 21" in note for note in notes), notes


@needs_device
@pytest.mark.parametrize("sign", [1, -1])
def test_a_convolution_in_a_branch_is_mended_too(sign: int, tmp_path: Path) -> None:
    text = (
        "g (float[1,6,6,6] x) => (float[1,8,4,4] y) "
        "{ s = ReduceSum <keepdims = 0> (x) z = Constant <value_float = 0.0> () c = Greater (s, z) "
        "y = If (c) <then_branch = t () => (float[1,8,4,4] u) { u = Conv (x, w) }, "
        "else_branch = e () => (float[1,8,4,4] v) { d = Conv (x, w) v = Neg (d) }> }"
    )
    weights = np.random.default_rng(0).normal(size=(8, 6, 3, 3)).astype(np.float32)
    source = saved(text, tmp_path, w=weights)
    fitted, _ = webgpu_fit.fit(Model.load(source))
    x = sign * np.abs(np.random.default_rng(1).normal(size=(1, 6, 6, 6))).astype(np.float32)
    (expected,) = onnxruntime.InferenceSession(source).run(None, {"x": x})
    from onnxport.runtimes.ort.webgpu import WebgpuRuntime

    with WebgpuRuntime(fitted.save(tmp_path / "fitted.onnx").path) as runtime:
        np.testing.assert_allclose(runtime.run({"x": x})["y"], expected, atol=1e-4)


@needs_device
def test_nodes_that_would_stay_on_the_cpu_are_refused_by_name(tmp_path: Path) -> None:
    source = saved("g (float[1,4] x) => (float[1,4] y) { a = Mul (x, x) [hard] y = Hardmax (a) }", tmp_path)
    with pytest.raises(CannotConvertError, match="Hardmax 'hard'") as caught:
        onnxport.convert_model(source, "ort", tmp_path / "m.ort", fit="webgpu")
    assert "onnxport extract" in caught.value.fix
    assert not (tmp_path / "m.ort").exists()


@needs_device
def test_sizes_computed_at_run_time_are_refused_with_the_command_that_fixes_them(tmp_path: Path) -> None:
    source = saved(
        "g (float[N,4] x) => (float[N,4] y) <int64[1] r = {4}> "
        "{ s = Shape <end = 1> (x) c = Concat <axis = 0> (s, r) e = Expand (x, c) y = Mul (e, e) }",
        tmp_path,
    )
    with pytest.raises(CannotConvertError) as caught:
        onnxport.convert_model(source, "ort", tmp_path / "m.ort", fit="webgpu")
    assert "onnxport optimize --shape" in caught.value.fix, str(caught.value)
