"""Run a candidate on every set of inputs and apply the criteria that its precision calls for."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING

from onnxport.core.errors import InputError
from onnxport.runtimes.base import RunError, UndefinedResultError
from onnxport.validate.answered_set import AnsweredSet
from onnxport.validate.budgets import Budgets, apply_budgets
from onnxport.validate.criteria import Criteria, choose_criteria
from onnxport.validate.custom_metrics import Averages
from onnxport.validate.fidelity import Fidelity
from onnxport.validate.params import ValidateParams
from onnxport.validate.progress import Counter, Tell
from onnxport.validate.reference import Reference
from onnxport.validate.report import Criterion, Judgement, Precision, Verdict
from onnxport.validate.rollout import Run
from onnxport.validate.signature import unfit_sizes
from onnxport.validate.undefined_answers import is_finite, notes_on, why_undefined

if TYPE_CHECKING:
    from onnxport.validate.lifted_reference import LiftedReference
    from onnxport.validate.quality import Floor, Quality
    from onnxport.validate.rounded_reference import RoundedReference

_NOTHING_COMPARED = "what the source computes is undefined on all generated inputs"


def evaluate(
    reference: Reference,
    candidate: Run,
    precision: Precision,
    params: ValidateParams,
    budgets: Budgets,
    kept: Collection[str] = (),
    criterion: Criterion | None = None,
    tell: Tell | None = None,
    lifted: LiftedReference | None = None,
    least: int = 0,
    is_proven: bool = False,
    floor: Floor | None = None,
    keeps_dynamic: bool = False,
) -> tuple[tuple[Judgement, ...], tuple[str, ...]]:
    """Judge a candidate's answers; it runs once per set, and no criterion keeps its answers.

    Args:
        precision: the candidate's.
        budgets: apply to the last judgement, and so do the user's metrics.
        kept: the reference's values that the candidate computes in float32 in spite of its precision.
        least: elements; the candidate holds smaller constants in float32 in spite of its precision.
        criterion: the only one to apply; None for those that the two precisions call for.
        lifted: of a candidate that is proven to be the reference node for node: what its own numbers give. It is
            closed.
        is_proven: whether it is so proven, and quality needs no evidence of that (Quality).
        floor: of quality; that of every lower precision unless given.
        keeps_dynamic: whether it keeps the reference's run-time quantization, in other operators.

    Returns:
        The judgements, fidelity first, and notes on the choice of criteria.
    """
    rounded: RoundedReference | LiftedReference | None
    if lifted is not None:
        criteria, rounded = Criteria(fidelity=True, rounded=True, quality=criterion is None), lifted
    elif criterion is None:
        criteria, rounded = _choose(reference, precision, kept, least, keeps_dynamic=keeps_dynamic)
    else:
        criteria, rounded = Criteria(criterion == "fidelity", quality=criterion == "quality"), None
    with rounded or nullcontext():
        fidelity = Fidelity(reference, rounded or reference, params) if criteria.fidelity else None
        quality = _quality(reference, params, is_proven, floor) if criteria.quality else None
        averages = Averages(budgets.user)
        progress = Counter(tell, "running the candidate, input set")

        def add(answered: AnsweredSet) -> None:
            feeds, answers = reference.answers(answered)
            refusal: UndefinedResultError | None = None
            try:
                given = candidate.run(feeds)
            except UndefinedResultError as error:
                given, refusal = {}, error
            # The first that is compared says whether the candidate computes anything at all.
            may_leave_out = compared or not is_finite(answers)
            why = (
                why_undefined(reference, answered, feeds, answers, None if refusal else given)
                if may_leave_out
                else ""
            )
            if why:
                left_out.setdefault(why, []).append(answered.label)
                return
            if refusal is not None:
                raise refusal
            compared.append(answered.label)
            if fidelity is not None:
                fidelity.add(answered, feeds, answers, given)
            if answered.adversarial or answered.is_between:
                return  # quality is about inputs that a user has
            if quality is not None:
                quality.add(answered, answers, given)
            averages.add(answered.label, answers, given)

        def is_inconclusive() -> bool:
            """Return whether the rounded reference's answers so far prove nothing about some output."""
            return rounded is not None and fidelity is not None and bool(fidelity.doubts)

        chosen = [each for each in (fidelity, quality) if each is not None]
        notes: tuple[str, ...] = (criteria.note,) if criteria.note else ()
        fed, compared, left_out = 0, list[str](), dict[str, list[str]]()
        failure = unfit_sizes(reference.shapes, candidate.inputs)
        if failure:
            return (chosen[0].failed(failure),), notes
        try:

            def add_all() -> None:
                """Count the sets that were not; a candidate that fails calls for more of them."""
                nonlocal fed
                while fed < len(sets := reference.sets_for(precision)):
                    progress.count(fed, len(sets))
                    add(sets[fed])
                    fed += 1

            add_all()
            if is_inconclusive():
                _add_further(reference, add_all, is_inconclusive)
        except RunError as error:
            return (chosen[0].failed(str(error)),), notes
        notes += notes_on(left_out)
        if left_out and not compared:
            undecided: Verdict = "unproven" if params.accept_inconclusive else "inconclusive"
            return (chosen[0].failed(_NOTHING_COMPARED, undecided),), notes
        *others, last = (each.judgement() for each in chosen)
        notes += () if fidelity is None else fidelity.notes
        notes += () if quality is None else tuple(quality.notes)
        last = last.model_copy(update={"metrics": averages.figures})
        return (*others, apply_budgets(last, budgets)), notes


def _quality(reference: Reference, params: ValidateParams, is_proven: bool, floor: Floor | None) -> Quality:
    # Imported here, as the rounded reference: equal precisions, the usual case, need neither.
    from onnxport.validate.quality import Floor, Quality

    return Quality(reference, params, is_proven=is_proven, floor=floor or Floor())


def _add_further(
    reference: Reference, add_all: Callable[[], None], is_inconclusive: Callable[[], bool]
) -> None:
    """Add further sets: the noise of a lower precision calls for them as the reference's own noise does."""
    with closing(reference.further_sets()) as further:
        for _ in further:
            add_all()
            if not is_inconclusive():
                return


def _choose(
    reference: Reference, candidate: Precision, kept: Collection[str], least: int, *, keeps_dynamic: bool
) -> tuple[Criteria, RoundedReference | None]:
    """Choose the criteria, and round the reference if fidelity asks for that and ONNX has such roundings."""
    criteria = choose_criteria(
        reference.precision,
        candidate,
        readable=reference.graph is not None,
        has_tolerance=reference.tolerance.is_given,
        keeps_dynamic=keeps_dynamic,
    )
    if not criteria.rounded:
        return criteria, None
    from onnxport.validate.rounded_reference import RoundedReference

    try:
        return criteria, RoundedReference(reference, candidate, kept, least)
    except InputError as error:
        return Criteria(quality=True, note=f"only quality was evaluated: {error}"), None
