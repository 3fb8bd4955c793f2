"""`--to ort --fit webgpu`: convolutions that WebGPU computes wrongly are right; nodes on the CPU are refused."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnxport
from onnxport.core.errors import CannotConvertError
from onnxport.runtimes.registry import find

kind = find("ort-webgpu")
assert kind is not None
lacking = ", ".join(kind.lacking) or kind.ask_probe()
needs_device = pytest.mark.skipif(
    bool(lacking) and not os.environ.get("CI"),
    reason=f"needs {lacking}: apt-get install chromium-common, pip install 'onnxport[webgpu]'",
)
CONV = "g (float[1,%d,6,6] x) => (float[1,8,6,6] y) { a = Conv <pads = [1,1,1,1]> (x, w) y = Relu (a) }"


def saved(text: str, folder: Path, **weights: np.ndarray) -> Path:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>\n{text}')
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
def test_nodes_that_would_stay_on_the_cpu_are_refused_by_name(tmp_path: Path) -> None:
    source = saved("g (float[1,4] x) => (float[1,4] y) { a = Mul (x, x) [hard] y = Shrink (a) }", tmp_path)
    with pytest.raises(CannotConvertError, match="Shrink 'hard'") as caught:
        onnxport.convert_model(source, "ort", tmp_path / "m.ort", fit="webgpu")
    assert "onnxport extract" in caught.value.fix
    assert not (tmp_path / "m.ort").exists()
