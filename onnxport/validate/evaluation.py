"""One candidate before the judge: the questions that its precision raises, and what its answers say to each."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from onnxport.core.arrays import Feeds
from onnxport.core.errors import InputError
from onnxport.core.resources import Closing
from onnxport.validate.criteria import Asked, questions
from onnxport.validate.custom_metrics import Averages, UserMetric
from onnxport.validate.expected_answers import RoundedReference
from onnxport.validate.fidelity import Fidelity
from onnxport.validate.noise_runs import Answers
from onnxport.validate.params import ValidateParams
from onnxport.validate.quality import Quality
from onnxport.validate.reference import Answered, Reference
from onnxport.validate.report import Judgement, Precision, Question


class Hearing(Closing):
    """Puts every set of inputs to every question; the candidate itself is run once per set.

    Args:
        candidate: its precision.
        kept: the reference's values that it computes in float32 in spite of that.
        metrics: the user's own, which belong to the last question: what is lost.
        only: the one question that is asked, whatever the precisions are; None for those that they raise.

    Attributes:
        notes: what the user should know about what was asked.
    """

    def __init__(
        self,
        reference: Reference,
        candidate: Precision,
        params: ValidateParams,
        metrics: Sequence[UserMetric],
        kept: Collection[str] = (),
        only: Question | None = None,
    ) -> None:
        self.notes: list[str] = []
        self._rounded: RoundedReference | None = None
        self._averages = Averages(metrics)
        if only is None:
            asked = self._asked(reference, candidate, kept)
        else:
            asked = Asked(fidelity=only == "fidelity", quality=only == "quality")
        self._questions: list[Fidelity | Quality] = []
        if asked.fidelity:
            yardstick = self._rounded or reference
            self._questions.append(Fidelity(reference, yardstick, accept=params.accept_inconclusive))
        if asked.quality:
            self._questions.append(
                Quality(
                    reference,
                    accept=params.accept_quality,
                    accept_inconclusive=params.accept_inconclusive,
                    budgeted=bool(params.budget),
                )
            )

    def _asked(self, reference: Reference, candidate: Precision, kept: Collection[str]) -> Asked:
        asked = questions(
            reference.precision,
            candidate,
            readable=reference.graph is not None,
            given=reference.tolerance.is_given,
        )
        if asked.rounded:
            try:
                self._rounded = RoundedReference(reference, candidate, kept)
            except InputError as error:
                asked = Asked(quality=True, note=f"only quality was asked: {error}")
        if asked.note:
            self.notes.append(asked.note)
        return asked

    def add(self, answered: Answered, feeds: Feeds, answers: Answers, given: Answers) -> None:
        """Counts one set: the reference's answers to `feeds`, and the candidate's."""
        for question in self._questions:
            if answered.adversarial and isinstance(question, Quality):
                continue  # what is lost is asked of inputs that a user has
            question.add(answered, feeds, answers, given)
        if not answered.adversarial:
            self._averages.add(answered.label, answers, given)

    @property
    def is_doubtful(self) -> bool:
        """Whether the sets so far prove nothing of an output in the candidate's own precision."""
        return self._rounded is not None and any(
            each.doubts for each in self._questions if isinstance(each, Fidelity)
        )

    def judgements(self) -> tuple[Judgement, ...]:
        """The answers, fidelity first; the user's metrics are in the last."""
        *others, last = (question.judgement() for question in self._questions)
        self.notes += [note for each in self._questions if isinstance(each, Quality) for note in each.notes]
        return (*others, last.model_copy(update={"metrics": self._averages.figures}))

    def failed(self, why: str) -> Judgement:
        """What is said of a candidate that gives no answers."""
        return self._questions[0].failed(why)

    def close(self) -> None:
        if self._rounded is not None:
            self._rounded.close()
