"""The judges of a run whose steps may lower the precision on purpose.

Two questions, never mixed (docs/fidelity.md): whether the artefact computes what the lowered model computes, which has
the same roundings, and what it lost against the source. Where only the last step lowers anything, one judge asks both.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from onnxport.core.errors import OnnxportError
from onnxport.formats.artifact import Artifact
from onnxport.pipelines.background_judge import JudgeAhead, started
from onnxport.validate.parity import settled
from onnxport.validate.report import Judgement, Report, overall

if TYPE_CHECKING:
    from onnxport.core.arrays import Feeds
    from onnxport.formats.model import Model
    from onnxport.runtimes.process import IsolatedRuntime
    from onnxport.validate.params import ValidateParams
    from onnxport.validate.size_search import Tell

# What is lost is asked of the source alone, and so is what a user demands of that.
_OF_THE_SOURCE: Mapping[str, object] = {"budget": {}, "metric": (), "report_tensors": None}
_AGAINST = "the quantized model that it was made from"


class Judges:
    """Asks of the source, and from `hold_to` on of a lowered model too.

    Args:
        source, params, runtime, graph, expected, tell: see JudgeAhead.
        lowers: whether a step before the last lowers the precision; `hold_to` then comes before anything is asked.
    """

    def __init__(
        self,
        source: Artifact,
        params: ValidateParams,
        runtime: IsolatedRuntime,
        graph: Model,
        expected: Artifact,
        *,
        lowers: bool,
        tell: Tell | None = None,
    ) -> None:
        self._tell = tell
        self._params, self._expected, self._lowers = params, expected, lowers
        self._stack = ExitStack()
        self._of_source = (
            JudgeAhead(source, params, runtime, graph, None, only="quality", tell=tell)
            if lowers
            else JudgeAhead(source, params, runtime, graph, expected, tell=tell)
        )
        self._stack.enter_context(self._of_source)
        self._lowered: Artifact | None = None
        self._of_lowered: JudgeAhead | None = None

    def hold_to(self, lowered: Artifact, graph: Model) -> None:
        """Has fidelity asked of `lowered`, which answers while the caller goes on."""
        self._lowered = lowered
        params = self._params.model_copy(update=_OF_THE_SOURCE)
        runtime = self._stack.enter_context(started(lowered, params))
        judge = JudgeAhead(lowered, params, runtime, graph, self._expected, only="fidelity", tell=self._tell)
        self._of_lowered = self._stack.enter_context(judge)

    def differs(self, candidate: Model) -> str | None:
        """See Judge.differs: from the model that the last step starts from."""
        return self._nearest.differs(candidate)

    def verdict(self, candidate: Artifact) -> Report:
        fidelity = self._nearest.verdict(candidate)
        if not self._lowers:
            return fidelity
        assert self._lowered is not None, "hold_to comes first"
        # The candidate's is the last: it writes the tensors that the user asked for.
        own = self._of_source.verdict(self._lowered) if fidelity.verdict == "inconclusive" else None
        # Figures that settle a doubt cannot tell a fault from rounding: single nodes can.
        quality = self._of_source.verdict(candidate, audited=own is not None)
        if own is not None:
            held, lost, rounded = (each.judgements[0] for each in (fidelity, quality, own))
            fidelity = fidelity.model_copy(update={"judgements": (settled(held, lost, rounded),)})
        return _together(fidelity, quality)

    def feeds(self) -> Feeds:
        """The first set of inputs."""
        return self._of_source.feeds()

    def refusal(self) -> OnnxportError | None:
        return self._of_source.refusal()

    @property
    def seconds(self) -> float:
        return self._of_source.seconds + (self._of_lowered.seconds if self._of_lowered else 0.0)

    @property
    def _nearest(self) -> JudgeAhead:
        if not self._lowers:
            return self._of_source
        assert self._of_lowered is not None, "hold_to comes first"
        return self._of_lowered

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)


def _together(fidelity: Report, quality: Report) -> Report:
    """One report on a candidate, of the answers to both questions; its reference is the source."""
    held = tuple(each.model_copy(update={"against": _AGAINST}) for each in fidelity.judgements)
    judgements: tuple[Judgement, ...] = (*held, *quality.judgements)
    verdict, reason = overall(judgements)
    sets = {each.label: each for each in (*quality.fed, *fidelity.fed)}
    update = {
        "verdict": verdict,
        "reason": reason,
        "judgements": judgements,
        "fed": tuple(sets.values()),
        "notes": tuple(dict.fromkeys((*fidelity.notes, *quality.notes))),
        "seconds": round(fidelity.seconds + quality.seconds, 4),
    }
    return quality.model_copy(update=update)
