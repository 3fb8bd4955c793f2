"""Run a candidate on every set of inputs and apply the criteria that its precision calls for."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack, closing

from onnxport.core.errors import InputError
from onnxport.runtimes.base import RunError
from onnxport.validate.budgets import Budgets, apply_budgets
from onnxport.validate.criteria import Criteria, choose_criteria
from onnxport.validate.custom_metrics import Averages
from onnxport.validate.fidelity import Fidelity
from onnxport.validate.params import ValidateParams
from onnxport.validate.quality import Quality
from onnxport.validate.reference import AnsweredSet, Reference
from onnxport.validate.report import Judgement, Precision, Question
from onnxport.validate.rollout import Run
from onnxport.validate.rounded_reference import RoundedReference
from onnxport.validate.signature import unfit_sizes


def evaluate(
    reference: Reference,
    candidate: Run,
    precision: Precision,
    params: ValidateParams,
    budgets: Budgets,
    kept: Collection[str] = (),
    criterion: Question | None = None,
) -> tuple[tuple[Judgement, ...], tuple[str, ...]]:
    """Judge a candidate's answers; it runs once per set, and no criterion keeps its answers.

    Args:
        precision: the candidate's.
        budgets: apply to the last judgement, and so do the user's metrics.
        kept: the reference's values that the candidate computes in float32 in spite of its precision.
        criterion: the only one to apply; None for those that the two precisions call for.

    Returns:
        The judgements, fidelity first, and notes on the choice of criteria.
    """
    with ExitStack() as stack:
        if criterion is None:
            criteria, rounded = _choose(reference, precision, kept)
        else:
            criteria, rounded = Criteria(criterion == "fidelity", quality=criterion == "quality"), None
        if rounded is not None:
            stack.enter_context(rounded)
        evaluation = _Evaluation(reference, candidate, criteria, rounded, params, budgets)
        judgements = evaluation.judgements()
        return judgements, (*((criteria.note,) if criteria.note else ()), *evaluation.notes)


def _choose(
    reference: Reference, candidate: Precision, kept: Collection[str]
) -> tuple[Criteria, RoundedReference | None]:
    """Choose the criteria, and round the reference if fidelity asks for that and ONNX has such roundings."""
    criteria = choose_criteria(
        reference.precision,
        candidate,
        readable=reference.graph is not None,
        has_tolerance=reference.tolerance.is_given,
    )
    if not criteria.rounded:
        return criteria, None
    try:
        return criteria, RoundedReference(reference, candidate, kept)
    except InputError as error:
        return Criteria(quality=True, note=f"only quality was evaluated: {error}"), None


class _Evaluation:
    """The criteria of one candidate while its answers come in."""

    def __init__(
        self,
        reference: Reference,
        candidate: Run,
        criteria: Criteria,
        rounded: RoundedReference | None,
        params: ValidateParams,
        budgets: Budgets,
    ) -> None:
        self._reference, self._candidate, self._budgets = reference, candidate, budgets
        self._is_rounded = rounded is not None
        self._fidelity = (
            Fidelity(reference, rounded or reference, accept=params.accept_inconclusive)
            if criteria.fidelity
            else None
        )
        self._quality = (
            Quality(
                reference,
                accept=params.accept_quality,
                accept_inconclusive=params.accept_inconclusive,
                has_budget=bool(params.budget),
            )
            if criteria.quality
            else None
        )
        self._averages = Averages(budgets.user)
        self.notes: tuple[str, ...] = ()

    def judgements(self) -> tuple[Judgement, ...]:
        """Run all sets and return the judgements; a single one on a candidate that does not run."""
        chosen = [each for each in (self._fidelity, self._quality) if each is not None]
        failure = unfit_sizes(self._reference.shapes, self._candidate.inputs)
        if failure:
            return (chosen[0].failed(failure),)
        try:
            self._run_all()
        except RunError as error:
            return (chosen[0].failed(str(error)),)
        *others, last = (each.judgement() for each in chosen)
        self.notes = () if self._quality is None else tuple(self._quality.notes)
        last = last.model_copy(update={"metrics": self._averages.figures})
        return (*others, apply_budgets(last, self._budgets))

    def _run_all(self) -> None:
        for answered in tuple(self._reference.sets):
            self._add(answered)
        if not self._is_inconclusive:
            return
        # The noise of a lower precision calls for more sets of inputs, as the reference's own noise does.
        with closing(self._reference.further_sets()) as further:
            for answered in further:
                self._add(answered)
                if not self._is_inconclusive:
                    return

    @property
    def _is_inconclusive(self) -> bool:
        """Whether the rounded reference's answers so far prove nothing about some output."""
        return self._is_rounded and self._fidelity is not None and bool(self._fidelity.doubts)

    def _add(self, answered: AnsweredSet) -> None:
        feeds, answers = self._reference.answers(answered)
        given = self._candidate.run(feeds)
        if self._fidelity is not None:
            self._fidelity.add(answered, feeds, answers, given)
        if answered.adversarial:
            return  # quality is about inputs that a user has
        if self._quality is not None:
            self._quality.add(answered, answers, given)
        self._averages.add(answered.label, answers, given)
