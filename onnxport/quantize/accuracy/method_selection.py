"""`--method auto`: build the models that one calibration allows, and keep the most accurate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from onnxport.formats.model import Model
from onnxport.quantize.candidate_score import Scorer

T = TypeVar("T")

# dB; a smaller lead on a few samples says nothing of others (PP-OCRv4's recognizer: 0.2 dB ahead, 1 dB behind).
NOTICEABLE = 0.5


@dataclass(frozen=True)
class Choice(Generic[T]):
    """The chosen candidate."""

    # name, value: of the candidate.
    name: str
    value: T
    scores: Mapping[str, float]  # name of every candidate to its mean SQNR over the outputs, dB

    @property
    def note(self) -> str:
        """The choice with its reason, for the user."""
        reached = ", ".join(f"{name} {score:.1f} dB" for name, score in self.scores.items())
        return f"ranges are those of {self.name}; on the samples tried they reached: {reached}"


def select_best(
    candidates: Mapping[str, T],
    build: Callable[[T], Model],
    scorer: Scorer,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Choice[T]:
    """Return the candidate nearest to the original; the first, unless another is noticeably nearer.

    Args:
        scorer: of the samples to choose by: better some that calibration did not see.
        progress: receives how many are scored, of how many.
    """
    scores: dict[str, float] = {}
    for number, (name, candidate) in enumerate(candidates.items()):
        scores[name] = scorer.score(build(candidate)).mean_sqnr
        progress(number + 1, len(candidates))
    first = next(iter(candidates))
    name = max(scores, key=lambda each: scores[each])
    if scores[name] < scores[first] + NOTICEABLE:
        name = first
    return Choice(name, candidates[name], scores)
