"""Fidelity: does the candidate compute what an ONNX model with the same roundings computes?"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from onnxport.core.arrays import Feeds
from onnxport.validate.accumulator import Tally
from onnxport.validate.answered_set import AnsweredSet
from onnxport.validate.comparison import Alternative, Comparison, compare
from onnxport.validate.float16_overflow import Overflows
from onnxport.validate.noise_runs import Answers
from onnxport.validate.params import ValidateParams
from onnxport.validate.reference import Reference
from onnxport.validate.report import RIGHT, Judgement, OutputReport, Verdict, telling
from onnxport.validate.tolerance import Noise, Tolerance

# dB: twice the error's power. ONNX Runtime's optimization levels differ by up to 2 dB on single photos (MobileNetV2,
# int8).
_EXTRA_LOSS = 3.0


class ExpectedAnswers(Protocol):
    """Answers that a candidate's must equal up to a tolerance: the reference's, or those of a rounded reference."""

    tolerance: Tolerance

    @property
    def against(self) -> str:
        """Its name in the report."""
        ...

    @property
    def doubts(self) -> dict[str, str]:
        """Output name to why the sets so far prove nothing of it."""
        ...

    def expect(
        self, answered: AnsweredSet, feeds: Feeds, answers: Answers
    ) -> tuple[Answers, dict[str, Noise]]:
        """Return the expected answers to one set, and their noise.

        Args:
            feeds, answers: the set's inputs, and the reference's own answers.
        """
        ...

    def alternatives(
        self, answered: AnsweredSet, names: Collection[str], tolerance: Tolerance
    ) -> dict[str, tuple[Alternative, ...]]:
        """Return what else right runtimes may answer for these outputs, by decisions within rounding."""
        ...


class Fidelity:
    """Compares a candidate's answers with the expected ones, set by set.

    Args:
        params: whether to accept outputs that prove nothing, unproven.
    """

    def __init__(self, reference: Reference, expected: ExpectedAnswers, params: ValidateParams) -> None:
        self._reference, self._expected, self._accept = reference, expected, params.accept_inconclusive
        # Outputs that differ from the reference beyond float32 noise somewhere.
        self._rounded: set[str] = set()
        self._overflows = Overflows()
        self._tallies = {
            spec.name: Tally(spec.name, spec.dtype, reference.nodes.get(spec.name))
            for spec in reference.outputs
        }

    def add(self, answered: AnsweredSet, feeds: Feeds, answers: Answers, given: Answers) -> None:
        """Count one set: the reference's answers to `feeds`, and the candidate's."""
        expected, noise = self._expected.expect(answered, feeds, answers)
        tolerance = self._expected.tolerance
        compared = self._compare(expected, given, noise, tolerance)
        if any(found.mismatches for found in compared.values()):
            # What passes with short sums passes with the long ones of these sizes.
            length = self._reference.accumulation_length(answered)
            tolerance = replace(tolerance, length=length, are_terms_equal=answered.adversarial)
            compared = self._compare(expected, given, noise, tolerance)
            while any(found.mismatches for found in compared.values()) and self._reference.refine(answered):
                expected, noise = self._expected.expect(answered, feeds, answers)
                compared = self._compare(expected, given, noise, tolerance)
        if any(found.mismatches or found.inconclusive for found in compared.values()):
            compared = self._compare_undecided(answered, compared, expected, given, noise, tolerance)
        if tolerance.precision == "float16" and self._expected is not self._reference:
            self._overflows.add(answered, feeds, answers, expected)
        for name, tally in self._tallies.items():
            tally.add(
                answered.label,
                expected[name],
                given[name],
                noise[name],
                compared[name],
                companion=answered.adversarial,
            )
            if self._expected is not self._reference:
                own = self._reference.tolerance
                if compare(name, expected[name], given[name], answered.noise[name], own).mismatches:
                    self._rounded.add(name)

    def _compare(
        self, expected: Answers, given: Answers, noise: Mapping[str, Noise], tolerance: Tolerance
    ) -> dict[str, Comparison]:
        return {
            name: compare(name, expected[name], given[name], noise[name], tolerance) for name in self._tallies
        }

    def _compare_undecided(
        self,
        answered: AnsweredSet,
        compared: dict[str, Comparison],
        expected: Answers,
        given: Answers,
        noise: Mapping[str, Noise],
        tolerance: Tolerance,
    ) -> dict[str, Comparison]:
        """Compare outputs that differ once more, with what other right decisions give."""
        names = [name for name, found in compared.items() if found.mismatches or found.inconclusive]
        found = self._expected.alternatives(answered, names, tolerance)
        return compared | {
            name: compare(name, expected[name], given[name], noise[name], tolerance, found[name])
            for name in names
            if name in found
        }

    def judgement(self) -> Judgement:
        """Return the judgement on all sets."""
        doubts = self.doubts
        outputs = tuple(
            tally.report(self._expected.tolerance, doubts.get(name, ""), self._accept)
            for name, tally in self._tallies.items()
        )
        verdict, reason = worst_verdict(outputs)
        return Judgement(
            question="fidelity",
            verdict=verdict,
            reason=reason,
            against=self._expected.against,
            outputs=outputs,
        )

    @property
    def doubts(self) -> dict[str, str]:
        """Output name to why the sets prove nothing of it.

        An output that equals the expected one within float32 noise needs no wider tolerance, and so no evidence for it.
        """
        own = self._reference.doubts
        found = self._expected.doubts
        return {name: doubt for name, doubt in found.items() if name in own or name in self._rounded}

    @property
    def notes(self) -> tuple[str, ...]:
        """The report's notes on what was compared."""
        return self._overflows.notes

    def failed(self, why: str, verdict: Verdict = "not equivalent") -> Judgement:
        """Return the judgement where no answers could be compared."""
        return Judgement(question="fidelity", verdict=verdict, reason=why, against=self._expected.against)


def worst_verdict(outputs: Sequence[OutputReport]) -> tuple[Verdict, str]:
    """Return the verdict on all outputs, and the rule behind it."""
    worst = telling(outputs)
    assert worst is not None, "a model has outputs"
    verdict = worst.verdict
    alike = [output for output in outputs if output.verdict == verdict]
    if verdict in RIGHT:
        # Another rule says more than "exact"; of these, that of the largest error says most.
        return verdict, next((o.rule for o in (worst, *alike) if o.rule != "exact"), "exact")
    more = len(alike) - 1
    others = f" (and {more} more output{'' if more == 1 else 's'})" if more else ""
    return verdict, f"{worst.name!r}: {worst.rule}{others}"


def resolve_by_loss(
    fidelity: Judgement, candidate: Judgement, quantized: Judgement, *, is_proven: bool = False
) -> Judgement:
    """Prove outputs whose rounding is chaotic by the loss against the float original.

    Integers are chaotic in deep networks. An activation that rounds the other way moves the next layer's by less than a
    step, so some of these round the other way, each by a whole step. After ten layers two right implementations of one
    quantized model are as far apart as either is from the float original. Yet both lose about the same against the
    original, while a fault adds its own power to the candidate's loss.

    Args:
        fidelity: of the candidate against the quantized model.
        candidate, quantized: quality of either against the float original, on the same inputs.
        is_proven: whether the candidate is the original node for node, each of its integers within a step of what exact
            arithmetic gives on those that its node read (translation/). Then no probe's few roundings bound how far the
            sum of all may go, and finite differences beyond the tolerance are no fault.

    Returns:
        `fidelity`, in which an inconclusive output without a fault is proven if the candidate's SQNR is at most 3 dB
        below the quantized model's. Faults stay, and so does what the original's own answers do not show.
    """
    if not fidelity.outputs:
        return fidelity
    ours = {each.name: each for each in candidate.outputs}
    theirs = {each.name: each for each in quantized.outputs}
    outputs = tuple(
        _resolve_output(each, ours.get(each.name), theirs.get(each.name), is_proven)
        for each in fidelity.outputs
    )
    verdict, reason = worst_verdict(outputs)
    return fidelity.model_copy(update={"outputs": outputs, "verdict": verdict, "reason": reason})


def _resolve_output(
    output: OutputReport, candidate: OutputReport | None, quantized: OutputReport | None, is_proven: bool
) -> OutputReport:
    is_rounding = output.verdict == "inconclusive" and not output.mismatches
    is_rounding |= is_proven and output.verdict not in RIGHT and _is_finite(output)
    if not is_rounding or candidate is None or quantized is None:
        return output
    if {candidate.verdict, quantized.verdict} - RIGHT or not output.dtype.startswith("float"):
        return output
    ours, theirs = (math.inf if each.sqnr_db is None else each.sqnr_db for each in (candidate, quantized))
    if ours < theirs - _EXTRA_LOSS:
        return output
    found = "beyond the tolerance" if output.mismatches else "inconclusive by tolerance"
    nodes = "node for node and " if is_proven else ""
    rule = (
        f"{found} ({output.rule}), proven {nodes}by its loss: SQNR {ours:.1f} dB, "
        f"the quantized model's {theirs:.1f} dB"
    )
    return output.model_copy(update={"verdict": "proven", "rule": rule if output.difference else "exact"})


def _is_finite(output: OutputReport) -> bool:
    """Return whether both sides have the same shape, and NaN and infinities at the same places."""
    return not output.broken and output.difference is not None and math.isfinite(output.max_abs)
