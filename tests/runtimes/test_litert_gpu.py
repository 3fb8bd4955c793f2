"""LiteRT's GPU runtime on a Vulkan device, one in software where there is no other: taken whole, refused, or wrong."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxport
from onnxport.core.errors import InputError, MachineError, UsageError
from onnxport.runtimes import vulkan
from onnxport.runtimes.litert_gpu import TfliteGpuRuntime
from onnxport.runtimes.options import RuntimeOptions

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits" / "digits.onnx"
GPU = {"runtime": "litert-gpu"}
lacking = vulkan.lacking()
needs_device = pytest.mark.skipif(
    bool(lacking) and not os.environ.get("CI"), reason=f"needs {lacking}: apt-get install chromium-common"
)


def converted(text: str, folder: Path, **options: object) -> tuple[Path, Path]:
    """Return the model that `text` says in ONNX's notation, and its `.tflite`, proven on the CPU."""
    source, made = folder / "m.onnx", folder / "m.tflite"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{text}'), source)
    onnxport.convert_model(source, "tflite", made, **options)
    return source, made


@needs_device
@pytest.mark.parametrize("layout", ["keep", "nhwc"])
def test_a_whole_network_is_proven_there(layout: str, tmp_path: Path) -> None:
    options = {"shape": {"image": (1, 1, 8, 8)}} | ({"layout": layout} if layout == "nhwc" else {})
    onnxport.convert_model(DIGITS, "tflite", tmp_path / "digits.tflite", **options)
    report = onnxport.validate_model(
        DIGITS, tmp_path / "digits.tflite", candidate_runtime=GPU, shape={"image": (1, 1, 8, 8)}
    )
    assert report.verdict == "proven", report.reason
    assert "GPU runtime on" in report.candidate.runtime


@needs_device
def test_an_operator_that_it_lacks_is_named(tmp_path: Path) -> None:
    _, made = converted("g (float[1,4,8,8] x) => (float[1,4,8,8] y) { y = HardSigmoid (x) }", tmp_path)
    with pytest.raises(InputError, match="RELU_0_TO_1"):
        TfliteGpuRuntime(made)


@needs_device
def test_all_reasons_and_nothing_else_are_given_where_nothing_runs_there(tmp_path: Path) -> None:
    text = "g (int64[1,4] x) => (int64[1,4] y) { a = Add (x, x) y = Mul (a, x) }"
    _, made = converted(text, tmp_path)
    with pytest.raises(InputError, match="INT64") as caught:
        TfliteGpuRuntime(made)
    assert caught.value.why
    assert "operations will run" not in caught.value.why


@needs_device
def test_what_it_takes_and_computes_wrongly_is_found(tmp_path: Path) -> None:
    """It fuses PAD with AVERAGE_POOL_2D and forgets that the padding counts."""
    pool = "AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = 1>"
    text = f"g (float[1,4,8,8] x) => (float[1,4,8,8] y) {{ y = {pool} (x) }}"
    source, made = converted(text, tmp_path)
    assert onnxport.validate_model(source, made).verdict == "proven"
    assert onnxport.validate_model(source, made, candidate_runtime=GPU).verdict == "not equivalent"


@needs_device
def test_integers_and_flags_go_in_and_out(tmp_path: Path) -> None:
    text = "g (int32[1,4,2,8] i, float[1,4,2,8] x) => (float[1,4,2,8] y, bool[1,4,2,8] z) "
    text += "{ f = Cast <to = 1> (i) y = Add (f, x) z = Greater (x, f) }"
    source, made = converted(text, tmp_path)
    assert onnxport.validate_model(source, made, candidate_runtime=GPU).verdict == "proven"


def test_open_sizes_are_refused_with_the_option_that_fixes_them(tmp_path: Path) -> None:
    _, made = converted("g (float[N,4] x) => (float[N,4] y) { y = Relu (x) }", tmp_path)
    with pytest.raises(InputError, match=r"--shape x=1,4"):
        TfliteGpuRuntime(made)


def test_a_folder_without_a_loader_is_wrong_usage(tmp_path: Path) -> None:
    _, made = converted("g (float[2,4] x) => (float[2,4] y) { y = Relu (x) }", tmp_path)
    with pytest.raises(UsageError, match="has no Vulkan loader"):
        TfliteGpuRuntime(made, RuntimeOptions(own=(("vulkan", str(tmp_path)),)))


@needs_device
def test_the_values_are_those_of_the_source(tmp_path: Path) -> None:
    _, made = converted(
        "g (float[1,3,5,8] x) => (float[1,8,3,5] y) { y = Transpose <perm = [0,3,1,2]> (x) }", tmp_path
    )
    x = np.random.default_rng(0).normal(size=(1, 3, 5, 8)).astype(np.float32)
    with TfliteGpuRuntime(made) as runtime:
        np.testing.assert_array_equal(runtime.run({"x": x})["y"], x.transpose(0, 3, 1, 2))


@needs_device
def test_a_tensor_beyond_the_buffers_of_the_device_is_one_sentence(tmp_path: Path) -> None:
    """SwiftShader's hold 1 GiB; a real GPU's may hold more."""
    text = "g (uint8[1,4100,1024,64] x) => (float[1,1,1,1] y) { a = Cast <to = 1> (x) y = ReduceMax (a) }"
    _, made = converted(text, tmp_path, validate=False)
    with pytest.raises(MachineError) as caught:
        TfliteGpuRuntime(made)
    assert caught.value.exit_code == 6
    assert "1, 4100, 1024, 1, 64 takes 1,074,790,400 bytes" in caught.value.why
    assert "--shape" in caught.value.fix
