"""The score of a candidate on samples, by the judge's metrics; searches choose by it.

The judge measures the saved file again; none of these figures is reported as its quality.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from onnxport.core.arrays import Array
from onnxport.core.resources import Closing
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.model import Model
from onnxport.quantize.float_part import FloatPart
from onnxport.runtimes.options import RuntimeOptions
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.samples.readers import SampleFile
from onnxport.validate.budgets import Budgets, sentence
from onnxport.validate.custom_metrics import Averages
from onnxport.validate.metrics import OutputSums, figures
from onnxport.validate.params import ValidateParams
from onnxport.validate.report import Figure

# Bytes of the original's answers that are kept; samples beyond are not scored on.
_KEPT = 512 * 2**20
# dB beyond which more is no gain: the noise of float32 begins.
_CEILING = 80.0
# Samples after which a score far from its limits decides; dB that are far, and standard errors of its samples' mean.
_FEW, _CLEAR, _ERRORS = 4, 1.0, 4.0
_ELSEWHERE = RuntimeOptions(level="disable")


@dataclass(frozen=True)
class Score:
    """A candidate's metrics on the samples."""

    sqnr: Mapping[str, float]  # dB against the original, for each float output that is not all zeros
    # The figures that the user set a budget for, by output ("" for metrics of all outputs).
    limited: tuple[tuple[str, Figure], ...] = ()
    is_partial: bool = False  # some samples left the decision clear

    @property
    def mean_sqnr(self) -> float:
        """Return the mean SQNR over the outputs in dB, each capped at 80."""
        values = [min(max(value, -_CEILING), _CEILING) for value in self.sqnr.values()]
        return float(np.mean(values)) if values else _CEILING

    @property
    def lowest_sqnr(self) -> float:
        """Return the lowest SQNR of the outputs that a budget limits, in dB; of all where none of these has one."""
        limited = [self.sqnr[name] for name, _ in self.limited if name in self.sqnr]
        lowest = min(limited or self.sqnr.values(), default=_CEILING)
        return min(max(lowest, -_CEILING), _CEILING)

    @property
    def unmet(self) -> tuple[str, ...]:
        """Return the violated budgets in words."""
        missed = [(output, figure) for output, figure in self.limited if figure.met is False]
        return tuple(
            f"{output!r}: {sentence(figure)}" if output else sentence(figure) for output, figure in missed
        )

    @property
    def meets(self) -> bool:
        return not self.unmet

    def has_room(self, other: Score) -> bool:
        """Return whether this and another score of a model meet each budget by as much as the two are apart."""
        if not (self.meets and other.meets):
            return False
        for (_, mine), (_, theirs) in zip(self.limited, other.limited, strict=True):
            apart, limit = abs(mine.value - theirs.value), mine.budget
            if (
                limit is not None
                and min(abs(mine.value - limit), abs(theirs.value - limit)) < apart < math.inf
            ):
                return False
        return True

    def is_clear(self, spread: float) -> bool:
        """Return whether ratios are so far from their limits that further samples will hardly change what is met.

        Args:
            spread: the largest standard error of an output's SQNR over the samples, in dB.
        """
        distances = [
            abs(figure.value - figure.budget)
            if figure.metric == "sqnr" and figure.budget is not None
            else 0.0
            for _, figure in self.limited
        ]
        return bool(distances) and min(distances) >= max(_CLEAR, _ERRORS * spread)

    @property
    def shortfall(self) -> float:
        """Return the largest missing share of a limit; 0 where all are met."""
        shares = [
            abs(figure.value - figure.budget) / max(abs(figure.budget), 1e-12)
            for _, figure in self.limited
            if figure.met is False and figure.budget is not None
        ]
        return max((share if math.isfinite(share) else 1e9 for share in shares), default=0.0)


class Scorer(Closing):
    """Scores candidates against the original's answers, which are computed once.

    Args:
        original: the float model; its answers are taken for right.
        files: the samples; as many are used as have room for their answers (512 MiB).
        validation: the user's budgets and metrics (UsageError if they make no sense).
    """

    def __init__(
        self, original: Model, files: Sequence[SampleFile], validation: ValidateParams | None = None
    ) -> None:
        self._budgets = Budgets({}) if validation is None else Budgets.of(validation)
        self._files: list[SampleFile] = []
        self._answers: list[dict[str, Array]] = []
        kept = 0
        with OrtRuntime.of_model(original) as runtime:
            for file in files:
                answers = runtime.run(file.load().feeds)
                self._files.append(file)
                self._answers.append(answers)
                kept += sum(answer.nbytes for answer in answers.values())
                if kept > _KEPT:
                    break

    def score(
        self,
        candidate: Model,
        *,
        elsewhere: bool = False,
        samples: int | None = None,
        decides: bool = False,
        behind: FloatPart | None = None,
    ) -> Score:
        """Run the candidate, which has the original's inputs and outputs, on the samples.

        Args:
            candidate: it may be changed; a copy takes longer than a run of many networks.
            samples: the first so many; all unless given.
            decides: whether some samples are enough where these are far from the budgets.
            behind: values of the first samples that the candidate need not compute.
            elsewhere: without ONNX Runtime's optimizations, as another runtime computes: what lies half between two
                steps of a grid is rounded otherwise, which moves deep networks as far as their quantization does.
        """
        seen: dict[str, OutputSums] = {}
        specs: dict[str, TensorSpec] = {}
        averages, course = Averages(self._budgets.user), _Course()
        candidate = candidate if behind is None else behind.rest_of(candidate)
        options = _ELSEWHERE if elsewhere else RuntimeOptions()
        with OrtRuntime.of_model(candidate, options, in_place=True) as runtime:
            pairs = list(zip(self._files[:samples], self._answers[:samples], strict=True))
            for number, (file, answers) in enumerate(pairs):
                feeds = file.load().feeds
                if behind is not None:
                    known = {**feeds, **behind.values(number)}
                    feeds = {spec.name: known[spec.name] for spec in runtime.inputs}
                # There, outputs that nothing quantized reaches are left out: they are the original's.
                given = {**(answers if behind is not None else {}), **runtime.run(feeds)}
                for name, answer in answers.items():
                    specs[name] = TensorSpec(name, answer.dtype.name, answer.shape)
                    seen.setdefault(name, OutputSums()).add(answer, given[name], 0.0)
                averages.add(file.label, answers, given)
                course.add(seen)
                if decides and _FEW <= number + 1 < len(pairs):
                    early = self._score(specs, seen, averages)
                    if early.is_clear(course.spread([name for name, _ in early.limited])):
                        return replace(early, is_partial=True)
        return self._score(specs, seen, averages)

    def float_part(self, model: Model, places: Sequence[str], samples: int) -> FloatPart:
        """Return what a float model has behind the nodes `places` on the first samples, for `score(behind=)`."""
        return FloatPart(model, [file.load().feeds for file in self._files[:samples]], places)

    def _score(
        self, specs: Mapping[str, TensorSpec], seen: Mapping[str, OutputSums], averages: Averages
    ) -> Score:
        found = {name: figures(spec, seen[name]) for name, spec in specs.items()}
        return Score(_sqnr(found), tuple(self._limited(found, averages.figures)))

    def close(self) -> None:
        """Free the answers."""
        self._answers.clear()

    def _limited(
        self, found: Mapping[str, Iterable[Figure]], own: Iterable[Figure]
    ) -> Iterable[tuple[str, Figure]]:
        of_outputs = [(name, self._budgets.on(each, name)) for name, group in found.items() for each in group]
        of_all = [("", self._budgets.on(each, None)) for each in own]
        return [(name, figure) for name, figure in (*of_outputs, *of_all) if figure.budget is not None]


class _Course:
    """The SQNR of each sample by itself."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, float]] = {}  # of signal and noise so far
        self._ratios: dict[str, list[float]] = {}

    def add(self, seen: Mapping[str, OutputSums]) -> None:
        """Note what the last sample added to the sums."""
        for name, each in seen.items():
            before, now = self._sums.get(name, (0.0, 0.0)), (each.sums.signal, each.sums.squared)
            signal, noise = now[0] - before[0], now[1] - before[1]
            self._sums[name] = now
            if signal > 0 and noise > 0:
                self._ratios.setdefault(name, []).append(10 * math.log10(signal / noise))

    def spread(self, names: Iterable[str]) -> float:
        """Return the largest standard error of the mean over the samples, in dB; 0 where none is known."""
        errors = [
            float(np.std(ratios, ddof=1)) / math.sqrt(len(ratios))
            for ratios in map(self._ratios.get, names)
            if ratios is not None and len(ratios) > 1
        ]
        return max(errors, default=0.0)


def _sqnr(found: Mapping[str, Iterable[Figure]]) -> dict[str, float]:
    """Return the SQNR of outputs that have a signal: without one every error is infinite."""
    values = {
        name: figure.value for name, group in found.items() for figure in group if figure.metric == "sqnr"
    }
    return {name: value for name, value in values.items() if value > -math.inf}


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
