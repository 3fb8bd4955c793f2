"""The criteria of each pair of precisions, and their judgements on small models."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxport.formats.artifact import Artifact
from onnxport.validate.criteria import choose_criteria
from onnxport.validate.judge import Judge
from onnxport.validate.params import ValidateParams
from onnxport.validate.report import Precision, Report
from tests.faults import quantized, surgery, weights
from tests.validate import lower


@pytest.mark.parametrize(
    ("reference", "candidate", "asked"),
    [
        ("float32", "float32", "fidelity"),
        ("float64", "float32", "fidelity"),
        ("float32", "float64", "fidelity"),
        ("int8", "int8", "fidelity"),
        ("int16x8", "int16x8", "fidelity"),
        ("int8 dynamic", "int8 dynamic", "fidelity"),
        ("mixed", "mixed", "fidelity"),
        ("unknown", "float32", "fidelity"),
        ("float16", "float16", "fidelity"),
        ("float32", "float16", "rounded quality"),
        ("float32", "bfloat16", "rounded quality"),
        ("float32", "float16 weights", "rounded quality"),
        ("float32", "bfloat16 weights", "rounded quality"),
        ("float32", "int8", "quality"),
        ("float32", "int8 dynamic", "quality"),
        ("float32", "int8 weights", "quality"),
        ("float32", "int4 weights", "quality"),
        ("float32", "int16x8", "quality"),
        ("float32", "mixed", "quality"),
        ("float64", "float16", "quality"),
        ("float16", "float32", "fidelity noted"),
        ("int8 weights", "float32", "fidelity noted"),
        ("float16", "float16 weights", "fidelity"),
        ("int8", "float32", "quality noted"),
        ("int8", "int16x8", "quality noted"),
        ("int8 dynamic", "int8", "quality noted"),
    ],
)
def test_the_precisions_choose_the_criteria(reference: Precision, candidate: Precision, asked: str) -> None:
    found = choose_criteria(reference, candidate)
    words = {
        "fidelity": found.fidelity and not found.rounded,
        "rounded": found.rounded,
        "quality": found.quality,
        "noted": bool(found.note),
    }
    assert " ".join(word for word, holds in words.items() if holds) == asked


def test_a_reference_without_a_graph_and_given_tolerances_change_the_criteria() -> None:
    unreadable = choose_criteria("float32", "float16", readable=False)
    assert (unreadable.fidelity, unreadable.quality) == (False, True)
    assert "cannot be read" in unreadable.note
    given = choose_criteria("float32", "int8", has_tolerance=True)
    assert (given.fidelity, given.rounded, given.quality) == (True, False, True)


def wide_mlp() -> onnx.ModelProto:
    """64 scores, so that means over them say something."""
    random_ = np.random.default_rng(3)
    shapes = {"w1": (24, 96), "b1": (96,), "w2": (96, 64), "b2": (64,)}
    weights = [
        numpy_helper.from_array((random_.standard_normal(shape) / 5).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], "first"),
        helper.make_node("Relu", ["h"], ["r"], "relu"),
        helper.make_node("Gemm", ["r", "w2", "b2"], ["y"], "second"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 24])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", 64])],
        weights,
    )
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])


def samples() -> list[dict[str, Any]]:
    return [{"x": np.random.default_rng(n).standard_normal((1, 24)).astype(np.float32)} for n in range(8)]


@pytest.fixture
def source(tmp_path: Path) -> Artifact:
    onnx.save(wide_mlp(), tmp_path / "source.onnx")
    return Artifact.open(tmp_path / "source.onnx")


def verdict(reference: Artifact, candidate: onnx.ModelProto | Path, **options: Any) -> Report:
    if not isinstance(candidate, Path):
        path = reference.path.with_name("candidate.onnx")
        onnx.save(candidate, path)
        candidate = path
    with Judge(reference, ValidateParams(**options)) as judge:
        return judge.verdict(Artifact.open(candidate))


def test_only_fidelity_applies_to_a_float32_artefact(source: Artifact) -> None:
    report = verdict(source, wide_mlp())
    assert [judgement.question for judgement in report.judgements] == ["fidelity"]
    assert report.judgements[0].against == "the reference itself"
    assert (report.reference.precision, report.candidate.precision) == ("float32", "float32")


@pytest.mark.parametrize(
    ("make", "precision", "against", "rule"),
    [
        (lower.half, "float16", "weights and activations rounded to float16", "expected float16 rounding"),
        (lower.half_weights, "float16 weights", "weights rounded to float16", "expected float16 rounding of weights"),
    ],
)  # fmt: skip
def test_float16_is_compared_with_the_rounded_reference_and_its_cost_is_measured(
    source: Artifact, make: Any, precision: Precision, against: str, rule: str
) -> None:
    report = verdict(source, make(wide_mlp()))
    assert report.candidate.precision == precision
    assert [judgement.question for judgement in report.judgements] == ["fidelity", "quality", "translation"]
    fidelity, quality, translation = report.judgements
    assert translation.verdict == "proven", translation.reason
    assert fidelity.against == f"the reference with {against}"
    assert fidelity.reason in (rule, "exact")
    assert quality.against == "the float original"
    assert quality.reason.startswith("quality: SQNR ")
    assert report.verdict == "proven"
    assert report.reason == f"{fidelity.reason}; {quality.reason}; {translation.reason}"


@pytest.mark.parametrize("make", [lower.half, lower.half_weights])
@pytest.mark.parametrize("fault", [weights.swapped_channels, weights.dropped_bias, weights.not_a_number])
def test_a_fault_is_found_beyond_float16_rounding(source: Artifact, make: Any, fault: surgery.Fault) -> None:
    broken = wide_mlp()
    fault(broken, random.Random(0))
    report = verdict(source, make(broken))
    fidelity = report.judgements[0]
    assert fidelity.verdict == "not equivalent"
    assert "beyond float16 rounding" in fidelity.reason
    assert ("nan at [" if fault is weights.not_a_number else ": difference ") in fidelity.reason


def test_what_is_small_but_everywhere_is_found_by_its_mean(source: Artifact) -> None:
    """1 % more of the last layer's weights: no element leaves what one may be off, all together do."""
    broken = wide_mlp()
    second = next(tensor for tensor in broken.graph.initializer if tensor.name == "w2")
    surgery.edit(second, lambda values: np.multiply(values, np.float32(1.01), out=values))
    report = verdict(source, lower.half(broken))
    assert report.judgements[0].verdict == "not equivalent"
    assert re.search(r"differ by [\d.e+-]+ on average, allowed [\de+-]+", report.reason)


def test_int8_is_judged_by_quality_against_the_float_original(source: Artifact, tmp_path: Path) -> None:
    made = lower.static(wide_mlp(), samples(), tmp_path / "int8.onnx")
    report = verdict(source, made)
    assert [(each.question, each.verdict) for each in report.judgements] == [
        ("quality", "measured"),
        ("translation", "proven"),
    ]
    assert report.verdict == "proven"
    assert report.reason.startswith("quality: SQNR ")
    assert "top-1" in report.reason
    turned = verdict(Artifact.open(made), source.path)
    assert [judgement.question for judgement in turned.judgements] == ["quality"]
    assert turned.judgements[0].against == "the reference in int8"
    assert any("give its float original first" in note for note in turned.notes)


@pytest.mark.parametrize("level", ["DISABLE_ALL", "ENABLE_ALL"])
def test_int8_against_itself_is_told_in_quantization_steps(level: str, tmp_path: Path) -> None:
    made = lower.static(wide_mlp(), samples(), tmp_path / "int8.onnx")
    report = verdict(Artifact.open(made), lower.as_ort(made, tmp_path / "m.ort", level))
    assert [judgement.question for judgement in report.judgements] == ["fidelity"]
    assert report.verdict == "proven"
    assert report.reason == "exact" or " ONNX Runtime against itself " in report.reason


@pytest.mark.parametrize(
    "fault",
    [
        quantized.weight_scale_off,
        quantized.activation_scale_off,
        quantized.zero_point_off,
        quantized.dropped_quantized_bias,
    ],
)
def test_a_fault_in_an_int8_model_is_found(fault: surgery.Fault, tmp_path: Path) -> None:
    made = lower.static(wide_mlp(), samples(), tmp_path / "int8.onnx")
    broken = onnx.load(made)
    fault(broken, random.Random(0))
    onnx.save(broken, tmp_path / "broken.onnx")
    report = verdict(Artifact.open(made), tmp_path / "broken.onnx")
    assert report.verdict == "not equivalent"
    assert "beyond int8 rounding: difference " in report.reason


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda values: values.fill(0), "everywhere"),
        (lambda values: np.multiply(values, 3, out=values), "the floor is 5 dB"),
        (lambda values: values.__setitem__((0, 0), np.inf), "NaN in "),
    ],
)
def test_below_the_floor_is_over_budget_unless_that_is_accepted(
    source: Artifact, change: Any, words: str, tmp_path: Path
) -> None:
    broken = wide_mlp()
    for name in ("w2", "b2"):
        tensor = next(tensor for tensor in broken.graph.initializer if tensor.name == name)
        if name == "w2" or "everywhere" in words:
            surgery.edit(tensor, change)
    int8 = lower.static(wide_mlp(), samples(), tmp_path / "int8.onnx")
    onnx.save(broken, tmp_path / "broken.onnx")
    report = verdict(Artifact.open(int8), tmp_path / "broken.onnx")
    assert (report.verdict, report.passed) == ("over budget", False)
    assert words in report.reason
    accepted = verdict(Artifact.open(int8), tmp_path / "broken.onnx", accept_quality=True)
    assert (accepted.verdict, accepted.passed) == ("unproven", True)


def test_a_budget_belongs_to_quality(source: Artifact) -> None:
    report = verdict(source, lower.half(wide_mlp()), budget={"sqnr": 300.0})
    fidelity, quality, _ = report.judgements
    assert (fidelity.verdict, quality.verdict, report.verdict) == ("proven", "over budget", "over budget")
    assert "sqnr" in report.reason


def test_given_tolerances_apply_to_the_reference_itself(source: Artifact) -> None:
    report = verdict(source, lower.half(wide_mlp()), atol=0.5, rtol=0.05)
    assert report.judgements[0].against == "the reference itself"
    assert report.judgements[0].reason == "within atol 0.5 + rtol 0.05 as given"
    assert verdict(source, lower.half(wide_mlp()), atol=1e-9).verdict == "not equivalent"


def test_a_float32_copy_of_a_float16_model_is_compared_with_it(tmp_path: Path) -> None:
    onnx.save(lower.half(wide_mlp()), tmp_path / "half.onnx")
    report = verdict(Artifact.open(tmp_path / "half.onnx"), wide_mlp())
    assert (report.verdict, report.judgements[0].question) == ("proven", "fidelity")
    broken = wide_mlp()
    weights.swapped_channels(broken, random.Random(0))
    assert verdict(Artifact.open(tmp_path / "half.onnx"), broken).verdict == "not equivalent"
