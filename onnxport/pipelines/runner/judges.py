"""The judges of a run whose steps may lower the precision on purpose.

Two criteria, never mixed (docs/reference/fidelity.md): fidelity against the quantized model with the same roundings,
and quality against the source. Where only the last step lowers the precision, one judge applies both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from onnxport.core.errors import OnnxportError
from onnxport.formats.artifact import Artifact
from onnxport.validate.fidelity import resolve_by_loss
from onnxport.validate.judge import Judge
from onnxport.validate.params import NO_DEMANDS
from onnxport.validate.precision import precision_of
from onnxport.validate.report import Judgement, Report, overall
from onnxport.validate.sessions import isolated

if TYPE_CHECKING:
    from onnxport.core.arrays import Feeds
    from onnxport.formats.model import Model
    from onnxport.runtimes.isolation import IsolatedRuntime
    from onnxport.validate.judge import ReferenceRun
    from onnxport.validate.params import ValidateParams
    from onnxport.validate.progress import Tell

_AGAINST = "the quantized model that it was made from"


class Judges:
    """A judge against the source and, from `judge_against` on, one against a quantized model.

    If `lowers`, a step before the last lowers the precision, and `judge_against` must come before any question. The
    other arguments are those of Judge.
    """

    def __init__(
        self,
        source: Artifact,
        params: ValidateParams,
        runtime: IsolatedRuntime | None,
        graph: Model,
        expected: Artifact,
        *,
        lowers: bool,
        tell: Tell | None = None,
        run: ReferenceRun | None = None,
    ) -> None:
        self._params, self._expected, self._lowers, self._tell = params, expected, lowers, tell
        self._stack = ExitStack()
        # With two judges the candidate's process waits for the quantized model's answers.
        judge = (
            Judge(source, params, runtime, graph, criterion="quality", tell=tell, run=run)
            if lowers
            else Judge(source, params, runtime, graph, expected, tell=tell, run=run)
        )
        self._source = self._stack.enter_context(judge)
        self._quantized: tuple[Artifact, Judge] | None = None

    def judge_against(self, quantized: Artifact, graph: Model) -> None:
        """Evaluate fidelity against `quantized`, which answers in the background."""
        params = self._params.model_copy(update=NO_DEMANDS)
        runtime = self._stack.enter_context(isolated(quantized, params, "reference"))
        judge = Judge(
            quantized, params, runtime, graph, self._expected, criterion="fidelity", tell=self._tell
        )
        self._quantized = quantized, self._stack.enter_context(judge)

    def differs(self, candidate: Model) -> str | None:
        """See Judge.differs: from the model that the last step starts from."""
        return self._pair[1].differs(candidate) if self._lowers else self._source.differs(candidate)

    def verdict(self, candidate: Artifact) -> Report:
        """See Judge.verdict."""
        if not self._lowers:
            return self._source.verdict(candidate)
        quantized, judge = self._pair
        fidelity = judge.verdict(candidate)
        # Imported here: it reads both graphs.
        from onnxport.validate.translation.judgement import judge_translation

        reference = self._source.reference
        translation, note = judge_translation(reference, candidate, precision_of(candidate))
        is_proven = translation is not None and translation.verdict == "proven"
        is_open = fidelity.verdict == "inconclusive" or (is_proven and fidelity.verdict == "not equivalent")
        # Before the candidate, whose verdict writes the tensors that the user asked for.
        own = self._source.verdict(quantized) if is_open else None
        # Losses that resolve a doubt do not tell a fault from rounding: single nodes do.
        quality = self._source.verdict(candidate, checks_nodes=is_open and not is_proven)
        if own is not None:
            losses = (each.judgements[0] for each in (fidelity, quality, own))
            resolved = resolve_by_loss(*losses, is_proven=is_proven)
            fidelity = fidelity.model_copy(update={"judgements": (resolved,)})
        notes = [note]
        if translation is None or translation.verdict == "unproven":
            # The step before may be proven alone.
            other, note = judge_translation(reference, quantized, precision_of(quantized))
            notes = [note] if translation is None else [*notes, note]
            if other is not None:
                reason = f"the quantized model that it was made from: {other.reason}"
                translation = other.model_copy(update={"reason": reason})
        return _combine(fidelity, quality, translation, notes)

    def on(self, runtime: Mapping[str, str]) -> Judge:
        """See Judge.on: against the source."""
        return self._source.on(runtime)

    def feeds(self) -> Feeds:
        """See Judge.feeds."""
        return self._source.feeds()

    def refusal(self) -> OnnxportError | None:
        """See Judge.refusal."""
        return self._source.refusal()

    @property
    def seconds(self) -> float:
        """Time that the references took."""
        return self._source.seconds + (self._quantized[1].seconds if self._quantized else 0.0)

    @property
    def _pair(self) -> tuple[Artifact, Judge]:
        assert self._quantized is not None, "judge_against comes first"
        return self._quantized

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)


def _combine(
    fidelity: Report, quality: Report, translation: Judgement | None, notes: Sequence[str]
) -> Report:
    """Make one report of all criteria; its reference is the source.

    Args:
        translation: of the artefact, or of the quantized model between; `notes` say what was not proven.
    """
    renamed = tuple(each.model_copy(update={"against": _AGAINST}) for each in fidelity.judgements)
    judgements: tuple[Judgement, ...] = (*renamed, *quality.judgements)
    if translation is not None:
        judgements += (translation,)
    verdict, reason = overall(judgements)
    sets = {each.label: each for each in (*quality.fed, *fidelity.fed)}
    update = {
        "verdict": verdict,
        "reason": reason,
        "judgements": judgements,
        "fed": tuple(sets.values()),
        "notes": tuple(dict.fromkeys((*fidelity.notes, *quality.notes, *filter(None, notes)))),
        "seconds": round(fidelity.seconds + quality.seconds, 4),
    }
    return quality.model_copy(update=update)
