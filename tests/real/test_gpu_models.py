"""Trained models on both GPU runtimes, whole and right; on a device in software where there is no other."""

from __future__ import annotations

from pathlib import Path

import pytest

import onnxport
from fixtures import models
from onnxport.formats.model import Model
from onnxport.optimizers.fixed_shapes import pin_shapes
from tests.converters.test_webgpu_fit import needs_device as needs_webgpu
from tests.runtimes.test_litert_gpu import needs_device

LITERT = (
    "age-gender/gender-v1.onnx",
    "g2p-id-py/encoder_model.onnx",
    "mtcnn/rnet.onnx",
    "qonnx/model.onnx",
    "qonnx/subpixel_float_model.onnx",
    "silero-vad/silero_vad_16k_sequence.onnx",
)
WEBGPU = (
    "g2p-id-py/encoder_model.onnx",
    "mtcnn/rnet.onnx",
    "qonnx/model.onnx",
    "qonnx/sdp.onnx",
    "qonnx/subpixel_float_model.onnx",
    "synheart-trees/ExtraTrees_120_60_nozipmap.onnx",
)


def pinned(key: str, folder: Path) -> Path:
    model = Model.load(models.path(key))
    pin_shapes(model, {name: tuple(shape) for name, shape in models.shapes(key).items()})
    return model.save(folder / "m.onnx").path


@needs_device
@pytest.mark.parametrize("key", LITERT)
def test_a_file_fitted_to_the_gpu_is_proven_on_litert(key: str, tmp_path: Path) -> None:
    source, made = pinned(key, tmp_path), tmp_path / "m.tflite"
    onnxport.convert_model(source, "tflite", made, fit="gpu", validate=False)
    report = onnxport.validate_model(source, made, candidate_runtime={"runtime": "litert-gpu"}, samples=1)
    assert report.verdict == "proven", report.reason


@needs_webgpu
@pytest.mark.parametrize("key", WEBGPU)
def test_a_file_fitted_to_webgpu_is_proven_there(key: str, tmp_path: Path) -> None:
    source, made = pinned(key, tmp_path), tmp_path / "m.ort"
    onnxport.convert_model(source, "ort", made, fit="webgpu", validate=False)
    report = onnxport.validate_model(source, made, candidate_runtime={"runtime": "ort-webgpu"}, samples=1)
    assert report.verdict == "proven", report.reason
