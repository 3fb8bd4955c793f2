"""What a translation adds to a report: a proof, a fault, or nothing."""

from __future__ import annotations

import pytest

from onnxport.validate.report import Criterion, Judgement, Verdict, overall


def _judgement(question: Criterion, verdict: Verdict) -> Judgement:
    return Judgement(question=question, verdict=verdict, reason=f"{question} {verdict}", against="")


@pytest.mark.parametrize(
    ("quality", "translation", "expected"),
    [
        ("measured", "proven", "proven"),
        ("measured", "unproven", "measured"),
        ("measured", "not equivalent", "not equivalent"),
        ("over budget", "proven", "over budget"),
        ("over budget", "unproven", "over budget"),
    ],
)
def test_what_was_not_proven_leaves_the_verdict_as_it_was(
    quality: Verdict, translation: Verdict, expected: Verdict
) -> None:
    judgements = _judgement("quality", quality), _judgement("translation", translation)
    assert overall(judgements)[0] == expected
