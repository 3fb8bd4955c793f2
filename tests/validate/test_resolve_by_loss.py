"""The loss against the float original resolves what the tolerance leaves inconclusive."""

from __future__ import annotations

import math
from typing import Any

import pytest

from onnxport.validate.fidelity import resolve_by_loss
from onnxport.validate.report import Criterion, Judgement, OutputReport, Verdict, Worst

WORST = Worst(index=(0, 0), reference=0.1, candidate=0.3, input_set="random 1")
NOISY = "the reference's own noise is 13.1% of the output's scale"


def output(verdict: Verdict, sqnr: float | None, **changes: Any) -> OutputReport:
    fields: dict[str, Any] = {
        "name": "logits",
        "dtype": "float32",
        "shape": (1, 10),
        "verdict": verdict,
        "rule": NOISY,
        "max_abs": 0.2,
        "mean_abs": 0.1,
        "scale": 1.0,
        "noise": 0.1,
        "tolerance": 0.5,
        "sqnr_db": sqnr,
        "mismatches": 0,
        "elements": 10,
    }
    return OutputReport(**fields | changes)


def judgement(question: Criterion, *outputs: OutputReport) -> Judgement:
    return Judgement(question=question, verdict=outputs[0].verdict, reason=NOISY, against="", outputs=outputs)


def found(held: OutputReport, lost: OutputReport, own: OutputReport, *, is_proven: bool = False) -> Judgement:
    judgements = judgement("fidelity", held), judgement("quality", lost), judgement("quality", own)
    return resolve_by_loss(*judgements, is_proven=is_proven)


@pytest.mark.parametrize(("lost", "verdict"), [(17.3, "proven"), (14.5, "proven"), (14.2, "inconclusive")])
def test_a_loss_as_large_as_the_quantized_models_own_resolves_the_doubt(
    lost: float, verdict: Verdict
) -> None:
    told = found(output("inconclusive", 19.0), output("proven", lost), output("proven", 17.3))
    assert (told.verdict, told.outputs[0].verdict) == (verdict, verdict)
    assert NOISY in told.reason
    assert ("17.3 dB" in told.reason) == (verdict == "proven")


def test_what_is_identical_is_called_exact() -> None:
    same = output("inconclusive", None, max_abs=0.0, mean_abs=0.0)
    told = found(same, output("proven", 17.3), output("proven", 17.3))
    assert (told.verdict, told.reason) == ("proven", "exact")


@pytest.mark.parametrize(
    "held",
    [
        output("not equivalent", 3.0, mismatches=4),
        output("inconclusive", 19.0, dtype="int64"),
        output("inconclusive", 19.0, name="another"),
    ],
)
def test_faults_and_what_the_original_does_not_show_stay(held: OutputReport) -> None:
    told = found(held, output("proven", 17.3), output("proven", 17.3))
    assert told.outputs == (held,)


@pytest.mark.parametrize(
    ("lost", "changes", "verdict"),
    [
        (14.5, {}, "proven"),
        (14.2, {}, "not equivalent"),
        (17.3, {"max_abs": math.inf}, "not equivalent"),
        (17.3, {"dtype": "int64"}, "not equivalent"),
    ],
)
def test_differences_of_a_file_that_is_proven_node_for_node_are_rounding(
    lost: float, changes: dict[str, Any], verdict: Verdict
) -> None:
    held = output("not equivalent", 19.0, mismatches=4, worst=WORST, **changes)
    told = found(held, output("proven", lost), output("proven", 17.3), is_proven=True)
    assert told.verdict == verdict


def test_an_original_that_proves_nothing_resolves_nothing() -> None:
    told = found(output("inconclusive", 19.0), output("inconclusive", 40.0), output("inconclusive", 40.0))
    assert told.verdict == "inconclusive"
