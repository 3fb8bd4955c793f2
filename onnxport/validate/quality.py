"""The second question: what did the lower precision cost against the original?

A floor holds by default: finite where the original is, not constant where it varies, SQNR of 5 dB or more, and on the
user's own inputs decisions that are still the original's (agreement.py). The user's budgets come on top (budgets.py).
What keeps them is measured, not proven.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from onnxport.core.arrays import Array, Feeds
from onnxport.validate.accumulator import Tally
from onnxport.validate.agreement import USEFUL, DecisionAgreement
from onnxport.validate.comparison import WORST_ELEMENTS, Comparison, compare
from onnxport.validate.error_sums import furthest
from onnxport.validate.fidelity import worst_of
from onnxport.validate.noise_runs import Answers
from onnxport.validate.reference import Answered, Reference
from onnxport.validate.report import Judgement, OutputReport, Precision, Verdict
from onnxport.validate.tolerance import Noise, Tolerance, float_differences

LEAST_SQNR = 5.0  # dB
# An original that varies by less than this share of its scale may be a constant at a lower precision.
_VARIES = 0.01

_NO_DIFFERENCE = "no difference"
_LOSSLESS = f"quality: {_NO_DIFFERENCE}"
_UNASKED = f"; no budget was given, only the floor of {LEAST_SQNR:g} dB"

_NO_NOISE = Noise(np.zeros(1), None)


class Quality:
    """Measures the candidate's answers against the reference's, set by set.

    Args:
        accept: whether the floor is waived.
        accept_inconclusive: whether outputs of the reference that never vary are taken unproven.
        budgeted: whether the user says how much may be lost.

    Attributes:
        notes: what the user should know about the answer, once it is given.
    """

    def __init__(
        self, reference: Reference, *, accept: bool, accept_inconclusive: bool, budgeted: bool = True
    ) -> None:
        self._reference, self._accept, self._inconclusive = reference, accept, accept_inconclusive
        self._budgeted = budgeted
        self.notes: list[str] = []
        self._measured = {
            spec.name: _Measured(
                Tally(spec.name, spec.dtype, reference.nodes.get(spec.name)),
                DecisionAgreement(spec.name, is_sigmoid=spec.name in reference.tolerance.saturating),
            )
            for spec in reference.outputs
        }

    def add(self, answered: Answered, feeds: Feeds, answers: Answers, given: Answers) -> None:
        """Counts one set: the reference's answers to `feeds`, and the candidate's."""
        for name, measured in self._measured.items():
            measured.add(answered.label, answers[name], given[name], own=answered.source == "samples")

    def judgement(self) -> Judgement:
        doubts = self._reference.doubts
        outputs = tuple(
            self._report(measured, doubts.get(name, "")) for name, measured in self._measured.items()
        )
        verdict, reason = worst_of(outputs)
        reason = f"quality: {reason}"
        if verdict == "measured":
            reason = summary(outputs)
            if not self._budgeted and reason != _LOSSLESS:
                reason += _UNASKED
                self.notes.append(_advice(outputs))
        return Judgement(
            question="quality",
            verdict=verdict,
            reason=reason,
            against=_against(self._reference.precision),
            outputs=outputs,
        )

    def failed(self, why: str) -> Judgement:
        """The judgement on a candidate that gives no answers."""
        return Judgement(
            question="quality",
            verdict="not equivalent",
            reason=why,
            against=_against(self._reference.precision),
        )

    def _report(self, measured: _Measured, doubt: str) -> OutputReport:
        report = measured.tally.report(self._reference.tolerance, doubt, self._inconclusive)
        if report.verdict != "proven":
            return report
        broken = measured.below_floor(report)
        verdict: Verdict = "measured" if not broken else "unproven" if self._accept else "over budget"
        return report.model_copy(update={"verdict": verdict, "rule": broken or _figures(report)})


@dataclass
class _Measured:
    """One output: its sums, what both sides decide, and the range of both."""

    tally: Tally
    decided: DecisionAgreement
    reference_range: tuple[float, float] = (math.inf, -math.inf)
    candidate_range: tuple[float, float] = (math.inf, -math.inf)

    def add(self, label: str, reference: Array, candidate: Array, *, own: bool) -> None:
        """Counts one set; `own` are the user's inputs, on which decisions mean something."""
        if own:
            self.decided.add(reference, candidate)
        self.tally.add(
            label, reference, candidate, _NO_NOISE, _measured(self.tally.name, reference, candidate)
        )
        self.reference_range = _widened(self.reference_range, reference)
        self.candidate_range = _widened(self.candidate_range, candidate)

    def below_floor(self, report: OutputReport) -> str:
        """What is wrong with it, in words; empty when it keeps the floor."""
        if not self.tally.dtype.startswith("float"):
            return ""
        if report.broken:
            return report.broken
        low, high = self.reference_range
        if high - low > _VARIES * report.scale and self.candidate_range[0] == self.candidate_range[1]:
            return f"it is {self.candidate_range[0]:.6g} everywhere"
        if report.sqnr_db is not None and report.scale and report.sqnr_db < LEAST_SQNR:
            return f"SQNR {report.sqnr_db:.1f} dB, the floor is {LEAST_SQNR:g} dB"
        return self.decided.lost


def _measured(name: str, reference: Array, candidate: Array) -> Comparison:
    """The differences of one set, none of which is a fault, but for answers of another shape."""
    if candidate.shape != reference.shape or reference.dtype.kind != "f":
        found = compare(name, reference, candidate, _NO_NOISE, Tolerance(1))
        shown = found.mismatches if candidate.shape != reference.shape else 0
        fault = found.fault if shown else ""
        return Comparison(shown, 0, found.differences, found.index, found.ratio, 0.0, fault, found.furthest)
    differences = float_differences(reference, candidate)[1]
    worst = furthest(differences, WORST_ELEMENTS) if differences.size else ()
    ratio, index = worst[0] if worst else (0.0, ())
    return Comparison(0, 0, differences, index, ratio, 0.0, "", worst)


def _widened(known: tuple[float, float], values: Array) -> tuple[float, float]:
    if values.dtype.kind != "f":
        return known
    finite = values[np.isfinite(values)]
    if not finite.size:
        return known
    return min(known[0], float(finite.min())), max(known[1], float(finite.max()))


def summary(outputs: Iterable[OutputReport]) -> str:
    """The worst figures over all outputs: "quality: SQNR 27.1 dB, top-1 98 %"."""
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
    """What to do where nothing but the floor was asked; sharper where classes get lost."""
    tops = {o.name: _value(o, "top1_agreement", 1.0) for o in outputs if _has_top(o)}
    name = min(tops, key=lambda name: tops[name], default="")
    if name and tops[name] < USEFUL:
        return (
            f"{name!r} has another first class than the original in {100 * (1 - tops[name]):.3g} % of all rows: if "
            "these are class scores, that is not fit for use; --budget top1_agreement=0.98 would refuse it"
        )
    return (
        "no budget was given, so that any loss above the floor passes: say what may be lost with --budget, "
        "as in --budget sqnr=20"
    )


def _has_top(output: OutputReport) -> bool:
    return any(figure.metric == "top1_agreement" for figure in output.figures)


def _value(output: OutputReport, metric: str, default: float) -> float:
    return next((figure.value for figure in output.figures if figure.metric == metric), default)


def _against(precision: Precision) -> str:
    return "the float original" if precision in ("float32", "float64") else f"the reference in {precision}"
