"""The judge, working on its reference answers while the caller still converts."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from onnxport.core.errors import InputError, OnnxportError, UsageError
from onnxport.formats.artifact import Artifact, Referent
from onnxport.pipelines.stages import Product
from onnxport.pipelines.step_times import Clock

if TYPE_CHECKING:
    from onnxport.core.arrays import Feeds
    from onnxport.formats.model import Model
    from onnxport.runtimes.base import ReferenceRuntime
    from onnxport.runtimes.process import IsolatedRuntime
    from onnxport.validate.judge import Judge
    from onnxport.validate.params import ValidateParams
    from onnxport.validate.report import Question, Report
    from onnxport.validate.size_search import Tell


# Bytes of weights. With more, the reference waits for the compiler: the two would lie in memory together.
_AHEAD = 256 * 2**20


class JudgeAhead:
    """A Judge whose `prepare` runs in a thread of its own; asking it for anything waits for that.

    ONNX Runtime releases the interpreter while it computes, and so does waiting for a compiler's process.

    Args:
        reference, params: see Judge.
        runtime: the process that runs the reference.
        graph: the reference in memory, where the caller has it.
        expected: the candidate, whose files need not be there yet. Its process starts when the reference's has
            answered and ended: a compiler needs the machine before, and the two would lie in memory together. None
            to start it with the verdict.
        only, tell: see Judge.

    Raises:
        UsageError: a budget or a metric of the user's that cannot be meant.
    """

    def __init__(
        self,
        reference: Referent,
        params: ValidateParams,
        runtime: ReferenceRuntime,
        graph: Model | None,
        expected: Artifact | None,
        only: Question | None = None,
        tell: Tell | None = None,
    ) -> None:
        self._reference, self._params, self._runtime, self._graph = reference, params, runtime, graph
        self._expected, self._only, self._tell = expected, only, tell
        if params.budget or params.metric:
            from onnxport.validate.budgets import Budgets

            budgets = Budgets.of(params)
            if graph is not None:
                budgets.check(graph.outputs)
        self._judge: Judge | None = None
        self._failure: BaseException | None = None
        self.seconds = 0.0
        # A daemon: Ctrl-C must not wait for a long inference.
        self._thread = threading.Thread(target=self._prepare, name="judge", daemon=True)
        if graph is None or graph.weight_bytes <= _AHEAD:
            self._thread.start()

    def differs(self, candidate: Model) -> str | None:
        return self._ready().differs(candidate)

    def verdict(self, candidate: Artifact, *, audited: bool | None = None) -> Report:
        return self._ready().verdict(candidate, audited=audited)

    def feeds(self) -> Feeds:
        """The first set of inputs that the reference answered."""
        return self._ready().reference.sets[0].load().feeds

    def refusal(self) -> OnnxportError | None:
        """What the reference lacks that it cannot be run, if it cannot."""
        try:
            self._ready()
        except (InputError, UsageError) as error:
            return error
        except OnnxportError:  # the machine, or a library that is not here
            return None
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, KeyboardInterrupt):
            return
        if self._started:
            self._thread.join()
        if self._judge is not None:
            self._judge.close()

    def _prepare(self) -> None:
        started = time.perf_counter()
        try:
            from onnxport.validate.judge import Judge

            self._judge = Judge(
                self._reference,
                self._params,
                graph=self._graph,
                runtime=self._runtime,
                only=self._only,
                tell=self._tell,
            )
            self._judge.prepare()
            if self._expected is not None:
                self._judge.expect(self._expected)
        except BaseException as error:  # handed to whoever asks
            self._failure = error
        self.seconds = time.perf_counter() - started

    @property
    def _started(self) -> bool:
        return self._thread.ident is not None

    def _ready(self) -> Judge:
        if not self._started:
            self._thread.start()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        assert self._judge is not None
        return self._judge


def waived(reference: Referent, candidate: Artifact, why: str = "validation was switched off") -> Report:
    """The report on a candidate that the user wants unproven, or that no runtime here can run."""
    from onnxport.validate.report import Report, Side

    def side(artifact: Referent) -> Side:
        return Side(
            path=str(artifact.path),
            format=artifact.format,
            runtime="not run",
            size=artifact.size,
            digest=artifact.digest(),
        )

    return Report(
        reference=side(reference),
        candidate=side(candidate),
        verdict="unproven",
        reason=why,
    )


class Asked(Protocol):
    """Who is asked about a product: one judge, or several that speak with one voice."""

    @property
    def seconds(self) -> float:
        """Spent beside the work of others."""
        ...

    def verdict(self, candidate: Artifact) -> Report: ...

    def refusal(self) -> OnnxportError | None:
        """See JudgeAhead.refusal."""
        ...


def verdict(judge: Asked | None, reference: Referent, product: Product, clock: Clock) -> Report:
    if product.unrunnable:
        return waived(reference, product.artifact, product.unrunnable)
    if judge is None:
        return waived(reference, product.artifact)
    with clock.phase("validate"):
        report = judge.verdict(product.artifact)
    clock.aside("reference", judge.seconds)
    return report


@contextmanager
def blaming_the_model(reference: Artifact, judge: Asked | None) -> Iterator[None]:
    """Puts the reference's error in the place of a bug of ours: what stumbled over a broken model is none.

    ONNX's checker lets many through whose nodes contradict their weights or bodies; ONNX Runtime says which.
    """
    try:
        yield
    except (OnnxportError, OSError, MemoryError):
        raise
    except Exception as bug:
        refusal = _refusal(reference) if judge is None else judge.refusal()
        if refusal is not None:
            raise refusal from bug
        raise


def _refusal(reference: Artifact) -> OnnxportError | None:
    """JudgeAhead.refusal where the user asked for no proof."""
    from onnxport.validate.params import ValidateParams

    params = ValidateParams()
    with (
        started(reference, params) as runtime,
        JudgeAhead(reference, params, runtime, None, reference) as judge,
    ):
        return judge.refusal()


def started(reference: Artifact, params: ValidateParams) -> IsolatedRuntime:
    """The process that runs the reference: begun before anything else, so that its imports cost no time."""
    from onnxport.validate.sessions import isolated

    return isolated(reference, params, "reference")
