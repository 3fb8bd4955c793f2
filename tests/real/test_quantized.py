"""Quantized real networks keep their scales: every product is an integer kernel, and the answers are ONNX Runtime's.

ONNX Runtime itself moves a QDQ network's answers when it optimizes it. What it differs from itself is the measure.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import onnxport
from fixtures import models
from onnxport.formats.model import Model
from onnxport.validate.graph_analysis import grid_steps
from tests import exact
from tests.real.quantizing import NETWORKS, Array, quantize

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

_PICTURES = range(9, 19)  # not those of the calibration
QUICK = "mobilenetv2/mobilenetv2.onnx"


def convert(source: Path, output: Path, *options: str) -> dict[str, Any]:
    """The installed command's record of the artefact."""
    command = [sys.executable, "-m", "onnxport", "convert", str(source), "--to", "tflite", "-o", str(output)]
    run = subprocess.run([*command, "--json", *options], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    artifact: dict[str, Any] = json.loads(run.stdout)["artifacts"][0]
    return artifact


def assert_all_products_are_int8(artifact: dict[str, Any]) -> None:
    notes = " ".join(artifact["notes"] if "notes" in artifact else artifact["report"]["notes"])
    counted = re.search(r"(\d+) of (\d+) convolutions and matrix products compute in int8", notes)
    assert counted is not None, artifact
    assert counted.group(1) == counted.group(2), notes


def session(model: Path, level: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    return onnxruntime.InferenceSession(
        exact.saved(model.read_bytes()), options, providers=["CPUExecutionProvider"]
    )


@pytest.mark.parametrize("activations", ["u8", pytest.param("s8", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    "key", [pytest.param(key, marks=[] if key == QUICK else pytest.mark.exhaustive) for key in NETWORKS]
)
def test_answers_differ_no_more_than_onnx_runtime_s_own(key: str, activations: str, tmp_path: Path) -> None:
    network = NETWORKS[key]
    source = quantize(network, tmp_path / "quantized.onnx", activations=activations)
    artifact = convert(source, tmp_path / "model.tflite", "--no-validate")
    assert_all_products_are_int8(artifact)
    optimized, plain = session(source, "ORT_ENABLE_ALL"), session(source, "ORT_DISABLE_ALL")
    model = Model.load(source)
    (step,) = grid_steps(model, model.graph.outputs).values()
    ours: list[Array] = []
    own: list[Array] = []
    with onnxport.load(tmp_path / "model.tflite") as runtime:
        for number in _PICTURES:
            feeds = network.feeds(number)
            (expected,) = optimized.run(None, feeds)
            (answer,) = runtime.run(feeds).values()
            ours.append(np.abs(answer - expected) / step)
            own.append(np.abs(plain.run(None, feeds)[0] - expected) / step)
    assert np.max(ours) <= max(2.01, 1.5 * np.max(own))
    assert np.mean(ours) <= 1


def test_a_model_that_was_published_quantized_is_proven_with_its_scales(tmp_path: Path) -> None:
    source = models.path("smart-turn/smart-turn-v3.2-cpu.onnx")
    artifact = convert(source, tmp_path / "model.tflite")
    assert artifact["report"]["verdict"] == "proven"
    assert_all_products_are_int8(artifact)
    assert artifact["facts"]["operators"]["FULLY_CONNECTED"] == 29
    missing = _activation_scales(onnx.load(source)) - _scales(tmp_path / "model.tflite")
    assert not missing


def _activation_scales(model: onnx.ModelProto) -> set[np.float32]:
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    return {
        np.float32(constants[node.input[1]]) for node in model.graph.node if node.op_type == "QuantizeLinear"
    }


def _scales(artefact: Path) -> set[np.float32]:
    from ai_edge_litert.interpreter import Interpreter

    details = Interpreter(str(artefact), experimental_preserve_all_tensors=True).get_tensor_details()
    return {np.float32(detail["quantization"][0]) for detail in details}
