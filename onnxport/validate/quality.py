"""Quality: what did the lower precision cost against the original?

A floor holds by default. The candidate is finite where the original is, is not constant where that varies, and has an
SQNR of 5 dB or more. On the user's own inputs its decisions are still the original's. The user's budgets come on top
(budgets.py). What passes is measured, not proven.

Decisions are first classes and detections. Class scores are rows of probabilities (none negative, sums of 1), or an
output of two axes with a name of scores; their decision is the first class. A detection is an element above one half in
an output of a Sigmoid; it is lost where the candidate stays below a quarter. Boxes have no form that all detectors
share; only the floor of every output applies to them. A candidate fails when fewer than nine in ten decisions are left
and chance does not explain it: with so many decisions, a candidate that loses one in ten would lose as many in fewer
than one of a hundred trials (binomial distribution).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from onnxport.core.arrays import Array
from onnxport.validate.accumulator import Tally
from onnxport.validate.answered_set import AnsweredSet
from onnxport.validate.comparison import WORST_ELEMENTS, Comparison, compare
from onnxport.validate.error_sums import looks_like_mask, sum_to_one, worst_elements
from onnxport.validate.fidelity import worst_verdict
from onnxport.validate.noise_runs import Answers
from onnxport.validate.params import ValidateParams
from onnxport.validate.reference import Reference
from onnxport.validate.report import Judgement, OutputReport, Verdict
from onnxport.validate.tolerance import Noise, Tolerance, float_differences

LEAST_SQNR = 5.0  # dB
# An original that varies by less than this share of its scale may be a constant at a lower precision.
_VARIES = 0.01

_KEPT_DECISIONS = 0.9
_CHANCE = 0.01
_MANY = 1000  # decisions from which the normal distribution approximates the binomial
_DETECTED, _STILL_DETECTED = 0.5, 0.25
_SCORES = re.compile(r"logit|score|prob|class|pred|label|softmax", re.IGNORECASE)

_NO_DIFFERENCE = "no difference"
_LOSSLESS = f"quality: {_NO_DIFFERENCE}"
_FLOOR_ONLY = "; no budget was given, only the floor of {:g} dB"

_LOSSY = "{!r} loses much on generated inputs ({}); see what it loses on yours with --inputs DIR"

_NO_NOISE = Noise(np.zeros(1), None)


@dataclass(frozen=True)
class Floor:
    """The least that every float output has to keep.

    Attributes:
        sqnr: dB; minus infinity for none.
        fix: the cause and the way out of less, as a clause for the report; empty for none.
    """

    sqnr: float = LEAST_SQNR
    fix: str = ""


class Quality:
    """Measures the candidate's answers against the reference's, set by set.

    Args:
        params: whether to waive the floor, and to accept outputs of the reference that never vary, unproven.
        is_proven: whether the candidate is the reference node for node. Then outputs need not vary, and what generated
            inputs lose is a figure, no limit: they resemble none that the model is for.
        floor: the least that outputs have to keep.

    Attributes:
        notes: for the report; complete after `judgement`.
    """

    def __init__(
        self,
        reference: Reference,
        params: ValidateParams,
        *,
        is_proven: bool = False,
        floor: Floor = Floor(),
    ) -> None:
        self._reference, self._params, self._is_proven = reference, params, is_proven
        self._floor = floor
        self._has_samples = False
        self.notes: list[str] = []
        self._losses = [
            _Loss(
                Tally(spec.name, spec.dtype, reference.nodes.get(spec.name)),
                DecisionAgreement(spec.name, is_sigmoid=spec.name in reference.tolerance.saturating),
            )
            for spec in reference.outputs
        ]

    def add(self, answered: AnsweredSet, answers: Answers, given: Answers) -> None:
        """Count one set: the reference's answers, and the candidate's."""
        self._has_samples |= answered.source == "samples"
        for loss in self._losses:
            name = loss.tally.name
            loss.add(answered.label, answers[name], given[name], is_sample=answered.source == "samples")

    def judgement(self) -> Judgement:
        """Return the judgement on all sets."""
        doubts = {} if self._is_proven else self._reference.doubts
        outputs = tuple(self._report(loss, doubts.get(loss.tally.name, "")) for loss in self._losses)
        verdict, reason = worst_verdict(outputs)
        reason = f"quality: {reason}"
        if verdict == "measured":
            reason = _summary(outputs)
            if not self._params.budget and reason != _LOSSLESS:
                reason += _FLOOR_ONLY.format(self._floor.sqnr) if math.isfinite(self._floor.sqnr) else ""
                self.notes.append(_advice(outputs))
        return self._judgement(verdict, reason, outputs)

    def failed(self, why: str, verdict: Verdict = "not equivalent") -> Judgement:
        """Return the judgement where no answers could be compared."""
        return self._judgement(verdict, why)

    def _judgement(self, verdict: Verdict, reason: str, outputs: tuple[OutputReport, ...] = ()) -> Judgement:
        precision = self._reference.precision
        is_float = precision in ("float32", "float64")
        against = "the float original" if is_float else f"the reference in {precision}"
        return Judgement(question="quality", verdict=verdict, reason=reason, against=against, outputs=outputs)

    def _report(self, loss: _Loss, doubt: str) -> OutputReport:
        report = loss.tally.report(self._reference.tolerance, doubt, self._params.accept_inconclusive)
        if report.verdict != "proven":
            return report
        fault = loss.below_floor(report, self._floor)
        if fault.startswith("SQNR") and self._is_proven and not self._has_samples:
            self.notes.append(_LOSSY.format(report.name, fault))
            fault = ""
        verdict: Verdict = (
            "measured" if not fault else "unproven" if self._params.accept_quality else "over budget"
        )
        return report.model_copy(update={"verdict": verdict, "rule": fault or _figures(report)})


@dataclass
class _Loss:
    """One output: its sums, the decisions of both sides, and the range of both."""

    tally: Tally
    decisions: DecisionAgreement
    reference_range: tuple[float, float] = (math.inf, -math.inf)
    candidate_range: tuple[float, float] = (math.inf, -math.inf)

    def add(self, label: str, reference: Array, candidate: Array, *, is_sample: bool) -> None:
        """Count one set; only decisions on the user's own samples mean something."""
        if is_sample:
            self.decisions.add(reference, candidate)
        found = _measure(self.tally.name, reference, candidate)
        self.tally.add(label, reference, candidate, _NO_NOISE, found)
        self.reference_range = _widen(self.reference_range, reference)
        self.candidate_range = _widen(self.candidate_range, candidate)

    def below_floor(self, report: OutputReport, floor: Floor) -> str:
        """Return what violates the floor, in words; empty for nothing."""
        if not self.tally.dtype.startswith("float"):
            return ""
        if report.broken:
            return report.broken
        low, high = self.reference_range
        if high - low > _VARIES * report.scale and self.candidate_range[0] == self.candidate_range[1]:
            return f"it is {self.candidate_range[0]:.6g} everywhere"
        level = report.sqnr_db if report.sqnr_db is not None and report.scale else math.inf
        if level < floor.sqnr:
            fix = f": {floor.fix}" if floor.fix else ""
            return f"SQNR {level:.1f} dB, the floor is {floor.sqnr:g} dB{fix}"
        return self.decisions.loss


@dataclass
class DecisionAgreement:
    """The decisions of one output.

    Attributes:
        name: of the output.
        is_sigmoid: whether a Sigmoid gives it.
        count, differing: the reference's decisions, and those that the candidate does not share.
        kind: "first class" or "detection".
    """

    name: str
    is_sigmoid: bool = False
    count: int = 0
    differing: int = 0
    kind: str = ""

    def add(self, reference: Array, candidate: Array) -> None:
        """Count one set."""
        if reference.shape != candidate.shape or reference.dtype.kind != "f" or not reference.size:
            return
        if self._holds_scores(reference):
            self.kind = "first class"
            differing = reference.argmax(axis=-1) != candidate.argmax(axis=-1)
            self.count += differing.size
            self.differing += int(differing.sum())
        elif self.is_sigmoid and reference.ndim > 1 and not looks_like_mask(reference):
            self.kind = "detection"
            detected = reference > _DETECTED
            self.count += int(detected.sum())
            self.differing += int((detected & ~(candidate >= _STILL_DETECTED)).sum())

    def _holds_scores(self, reference: Array) -> bool:
        if reference.ndim < 2 or reference.shape[-1] < 2:
            return False
        if sum_to_one(reference.reshape(-1, reference.shape[-1])):
            return True
        return reference.ndim == 2 and bool(_SCORES.search(self.name))

    @property
    def loss(self) -> str:
        """The loss in words; empty where nine in ten decisions are left, or chance may explain it."""
        if _probability(self.differing, self.count, 1 - _KEPT_DECISIONS) >= _CHANCE:
            return ""
        counts = f"{self.differing:,} of {self.count:,}"
        texts = {
            "first class": f"the top-1 class differs from the original's in {counts} rows",
            "detection": f"{counts} detections of the original are lost",
        }
        return f"{texts[self.kind]}, the floor is {100 * (1 - _KEPT_DECISIONS):.0f} % beyond chance"


def _probability(hits: int, count: int, share: float) -> float:
    """Return the probability of `hits` or more in `count` independent trials that each hit with `share`."""
    if hits <= share * count:
        return 1.0
    if count > _MANY:
        return 1 - NormalDist(share * count, math.sqrt(count * share * (1 - share))).cdf(hits - 0.5)
    terms = (math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(hits, count + 1))
    return float(np.sum(list(terms)))


def _measure(name: str, reference: Array, candidate: Array) -> Comparison:
    """Measure the differences of one set; only another shape is a fault."""
    if candidate.shape != reference.shape or reference.dtype.kind != "f":
        found = compare(name, reference, candidate, _NO_NOISE, Tolerance(1))
        shown = found.mismatches if candidate.shape != reference.shape else 0
        fault = found.fault if shown else ""
        return Comparison(shown, 0, found.index, found.ratio, 0.0, fault, found.worst)
    differences = float_differences(reference, candidate)[1]
    worst = worst_elements(differences, WORST_ELEMENTS) if differences.size else ()
    ratio, index = worst[0] if worst else (0.0, ())
    return Comparison(0, 0, index, ratio, 0.0, "", worst)


def sqnr(reference: Array, candidate: Array) -> float:
    """Return 10 log10(sum reference^2 / sum difference^2) in dB; infinite for equal arrays, and where it has none."""
    if reference.dtype.kind != "f" or reference.shape != candidate.shape:
        return math.inf
    with np.errstate(invalid="ignore", over="ignore"):
        signal = float(np.square(reference, dtype=np.float64).sum())
        noise = float(np.square(reference.astype(np.float64) - candidate).sum())
    is_known = signal > 0 and noise > 0 and math.isfinite(signal) and math.isfinite(noise)
    return 10 * math.log10(signal / noise) if is_known else math.inf


def _widen(known: tuple[float, float], values: Array) -> tuple[float, float]:
    if values.dtype.kind != "f":
        return known
    finite = values[np.isfinite(values)]
    if not finite.size:
        return known
    return min(known[0], float(finite.min())), max(known[1], float(finite.max()))


def _summary(outputs: Iterable[OutputReport]) -> str:
    """Return the worst figures over all outputs: "quality: SQNR 27.1 dB, top-1 98 %"."""
    found = list(outputs)
    lowest = min((_value(output, "sqnr", math.inf) for output in found), default=math.inf)
    top = min((_value(output, "top1_agreement", 1.0) for output in found if _has_top(output)), default=None)
    changed = max((_value(output, "mismatch_share", 0.0) for output in found), default=0.0)
    return f"quality: {_text(lowest, top, changed)}"


def _figures(output: OutputReport) -> str:
    top = _value(output, "top1_agreement", 1.0) if _has_top(output) else None
    return _text(_value(output, "sqnr", math.inf), top, _value(output, "mismatch_share", 0.0))


def _text(sqnr: float, top: float | None, changed: float) -> str:
    parts = [f"SQNR {sqnr:.1f} dB" if math.isfinite(sqnr) else ""]
    parts.append("" if top is None else f"top-1 {100 * top:.3g} %")
    parts.append(f"{100 * changed:.3g} % of integers differ" if changed else "")
    return ", ".join(part for part in parts if part) or _NO_DIFFERENCE


def _advice(outputs: Iterable[OutputReport]) -> str:
    """Return the way out where only the floor applied; sharper where classes get lost."""
    tops = {o.name: _value(o, "top1_agreement", 1.0) for o in outputs if _has_top(o)}
    name = min(tops, key=lambda name: tops[name], default="")
    if name and tops[name] < _KEPT_DECISIONS:
        return (
            f"the top-1 class of {name!r} differs from the original's in {100 * (1 - tops[name]):.3g} % of all rows; "
            "if these are class scores, let your own samples decide: --inputs DIR --budget top1_agreement=0.98"
        )
    return (
        "no budget was given, so any loss above the floor passes; set a limit, for example --budget sqnr=20"
    )


def _has_top(output: OutputReport) -> bool:
    return any(figure.metric == "top1_agreement" for figure in output.figures)


def _value(output: OutputReport, metric: str, default: float) -> float:
    return next((figure.value for figure in output.figures if figure.metric == metric), default)
