"""Real networks in lower precisions: right artefacts pass, faults are found where rounding lets them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import onnx
import pytest

from fixtures import models
from onnxport.formats.artifact import Artifact
from onnxport.validate.judge import Judge
from onnxport.validate.params import ValidateParams
from onnxport.validate.reference import Reference
from onnxport.validate.report import Report
from onnxport.validate.sessions import isolated
from tests.faults import attributes, surgery, weights
from tests.faults import quantized as int8_faults
from tests.validate import lower

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

SMART_TURN = "smart-turn/smart-turn-v3.2-cpu.onnx"
CLASSIFIER = "rapidocr-v4/ch_ppocr_mobile_v2.0_cls_infer.onnx"


def verdict(reference: Path, candidate: Path, **options: Any) -> Report:
    with Judge(Artifact.open(reference), ValidateParams(**options)) as judge:
        return judge.verdict(Artifact.open(candidate))


def saved(model: onnx.ModelProto, path: Path) -> Path:
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("make", [lower.half, lower.half_weights], ids=["float16", "weights"])
@pytest.mark.parametrize(
    "key",
    [
        "age-gender/gender-v1.onnx",
        "g2p-id-py/bert_mlm.onnx",
        "silero-vad/silero_vad_16k_sequence.onnx",
        "light/squeezenet",
        "mobilenetv2/mobilenetv2.onnx",
    ],
)
def test_float16_is_proven_and_its_cost_is_told(key: str, make: Any, tmp_path: Path) -> None:
    source = onnx.load(models.path(key))

    report = verdict(models.path(key), saved(make(lower.folded(source)), tmp_path / "half.onnx"))
    assert report.verdict == "proven", report.reason
    assert [judgement.question for judgement in report.judgements][:2] == ["fidelity", "quality"]
    assert all(each.verdict != "not equivalent" for each in report.judgements)
    assert "float16" in report.candidate.precision


@pytest.mark.parametrize("fault", [weights.swapped_channels, weights.not_a_number, attributes.padding_moved])
def test_a_fault_is_found_beyond_float16_rounding(fault: surgery.Fault, tmp_path: Path) -> None:
    path = models.path("age-gender/gender-v1.onnx")
    broken = onnx.load(path)
    fault(broken, random.Random(0))
    report = verdict(path, saved(lower.half(broken), tmp_path / "half.onnx"))
    assert report.judgements[0].verdict == "not equivalent"


@pytest.mark.parametrize("seed", range(2))
def test_a_real_int8_model_equals_itself_at_every_level(seed: int, tmp_path: Path) -> None:
    source = models.path(SMART_TURN)
    with Judge(Artifact.open(source), ValidateParams(seed=seed)) as judge:
        for level in ("DISABLE_ALL", "ENABLE_BASIC", "ENABLE_EXTENDED", "ENABLE_ALL"):
            report = judge.verdict(Artifact.open(lower.as_ort(source, tmp_path / f"{level}.ort", level)))
            assert report.verdict == "proven", f"{level}: {report.reason}"
            assert (report.reference.precision, report.candidate.precision) == ("int8", "int8")


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text direction classifier in QDQ, calibrated on inputs like those that it is tried on."""
    folder = tmp_path_factory.mktemp("quantized")
    artifact, params = Artifact.open(models.path(CLASSIFIER)), ValidateParams(samples=6, seed=7)
    reference = Reference(artifact, params, isolated(artifact, params, "reference"))
    reference.prepare()
    samples = [dict(reference.answers(each)[0]) for each in reference.sets]
    source = onnx.version_converter.convert_version(onnx.load(artifact.path), 13)
    source.ir_version = 8
    return lower.static(lower.folded(source), samples, folder / "int8.onnx")


@pytest.mark.parametrize("level", ["DISABLE_ALL", "ENABLE_ALL"])
def test_a_statically_quantized_model_equals_itself(quantized: Path, level: str, tmp_path: Path) -> None:
    report = verdict(quantized, lower.as_ort(quantized, tmp_path / "m.ort", level))
    assert report.verdict == "proven", report.reason


def test_a_statically_quantized_model_is_judged_by_quality_against_its_original(quantized: Path) -> None:
    report = verdict(models.path(CLASSIFIER), quantized)
    assert [judgement.question for judgement in report.judgements] == ["quality", "translation"]
    assert report.judgements[0].outputs[0].sqnr_db is not None


@pytest.mark.parametrize(
    "fault",
    [int8_faults.weight_scale_off, int8_faults.activation_scale_off, int8_faults.dropped_quantized_bias],
)
def test_faults_in_a_quantized_model_are_found(fault: surgery.Fault, quantized: Path, tmp_path: Path) -> None:
    found = 0
    for number in range(3):
        broken = onnx.load(quantized)
        fault(broken, random.Random(number))
        report = verdict(quantized, saved(broken, tmp_path / f"{number}.onnx"))
        found += report.verdict == "not equivalent"
    assert found >= 2, "one in three may be as small as a step"
