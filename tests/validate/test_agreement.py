"""Which outputs hold decisions, and when too many of them are lost."""

from __future__ import annotations

import numpy as np
import pytest

from onnxport.validate.quality import DecisionAgreement

_RANDOM = np.random.default_rng(5)


def _rows(count: int, wrong: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of ten classes, of which the second side has another first class in `wrong` rows."""
    ours = np.eye(10, dtype=np.float32)[_RANDOM.integers(0, 10, count)] * 0.82 + 0.018
    theirs = ours.copy()
    theirs[:wrong] = np.roll(ours[:wrong], 1, axis=1)
    return ours, theirs


@pytest.mark.parametrize(
    ("count", "wrong", "refused"),
    [
        (20, 0, False),
        (20, 2, False),  # one in ten
        (20, 6, False),  # as many are had by chance in 1.1 % of trials
        (20, 7, True),  # in 0.2 %
        (2, 1, False),
        (6, 6, True),
        (5000, 600, True),
        (5000, 520, False),
    ],
)
def test_classes_are_lost_when_chance_does_not_explain_it(count: int, wrong: int, refused: bool) -> None:
    decided = DecisionAgreement("y")
    decided.add(*_rows(count, wrong))
    assert bool(decided.loss) == refused


def test_probabilities_are_told_by_their_sums_and_logits_by_their_name() -> None:
    logits = _RANDOM.normal(size=(40, 10)).astype(np.float32)
    for name, refused in (("logits", True), ("class_scores", True), ("embedding", False)):
        decided = DecisionAgreement(name)
        decided.add(logits, -logits)
        assert bool(decided.loss) == refused, name


def test_detections_are_what_a_sigmoid_gives_above_one_half() -> None:
    scores = np.full((1, 100, 1), 0.01, np.float32)
    scores[0, :12] = 0.9
    weak = scores.copy()
    weak[0, :8] = 0.1
    found, other = DecisionAgreement("heads", is_sigmoid=True), DecisionAgreement("heads")
    for each in (found, other):
        each.add(scores, weak)
    assert "8 of 12 detections of the original are lost" in found.loss
    assert not other.loss
