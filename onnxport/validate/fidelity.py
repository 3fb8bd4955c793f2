"""The first question: does the candidate compute what an ONNX model with the same roundings computes?"""

from __future__ import annotations

from collections.abc import Sequence

from onnxport.core.arrays import Feeds
from onnxport.validate.accumulator import Tally
from onnxport.validate.comparison import compare
from onnxport.validate.expected_answers import Yardstick
from onnxport.validate.noise_runs import Answers
from onnxport.validate.reference import Answered, Reference
from onnxport.validate.report import RIGHT, Judgement, OutputReport, Verdict, telling


class Fidelity:
    """Compares the candidate's answers with a yardstick's, set by set.

    Args:
        accept: whether outputs that prove nothing are taken unproven.
    """

    def __init__(self, reference: Reference, yardstick: Yardstick, *, accept: bool) -> None:
        self._reference, self._yardstick, self._accept = reference, yardstick, accept
        # Outputs that are beyond float32 noise somewhere.
        self._rounded: set[str] = set()
        self._tallies = {
            spec.name: Tally(spec.name, spec.dtype, reference.nodes.get(spec.name))
            for spec in reference.outputs
        }

    def add(self, answered: Answered, feeds: Feeds, answers: Answers, given: Answers) -> None:
        """Counts one set: the reference's answers to `feeds`, and the candidate's."""
        expected, noise = self._yardstick.measured(answered, feeds, answers)
        for name, tally in self._tallies.items():
            found = compare(name, expected[name], given[name], noise[name], self._yardstick.tolerance)
            tally.add(
                answered.label,
                expected[name],
                given[name],
                noise[name],
                found,
                companion=answered.adversarial,
            )
            if self._yardstick is not self._reference:
                own = self._reference.tolerance
                if compare(name, expected[name], given[name], answered.noise[name], own).mismatches:
                    self._rounded.add(name)

    def judgement(self) -> Judgement:
        doubts = self.doubts
        outputs = tuple(
            tally.report(self._yardstick.tolerance, doubts.get(name, ""), self._accept)
            for name, tally in self._tallies.items()
        )
        verdict, reason = worst_of(outputs)
        return Judgement(
            question="fidelity",
            verdict=verdict,
            reason=reason,
            against=self._yardstick.against,
            outputs=outputs,
        )

    @property
    def doubts(self) -> dict[str, str]:
        """What proves nothing. An output that equals the yardstick's within float32 noise needs no wider tolerance,
        and so no evidence for one."""
        own = self._reference.doubts
        found = self._yardstick.doubts
        return {name: doubt for name, doubt in found.items() if name in own or name in self._rounded}

    def failed(self, why: str) -> Judgement:
        """The judgement on a candidate that gives no answers."""
        return Judgement(
            question="fidelity", verdict="not equivalent", reason=why, against=self._yardstick.against
        )


def worst_of(outputs: Sequence[OutputReport]) -> tuple[Verdict, str]:
    """The verdict on all outputs, and the rule that tells it."""
    worst = telling(outputs)
    assert worst is not None, "a model has outputs"
    verdict = worst.verdict
    alike = [output for output in outputs if output.verdict == verdict]
    if verdict in RIGHT:
        # "exact" says less than what the others rest on, and of these the one with the largest error says most.
        return verdict, next((o.rule for o in (worst, *alike) if o.rule != "exact"), "exact")
    more = len(alike) - 1
    others = f" (and {more} more output{'' if more == 1 else 's'})" if more else ""
    return verdict, f"{worst.name!r}: {worst.rule}{others}"
