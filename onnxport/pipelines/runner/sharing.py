"""The models and the references' answers that several jobs of one command have in common."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from onnxport.formats.artifact import Artifact
from onnxport.pipelines.runner.model_sources import load, origin_of
from onnxport.reports.run_report import SourceRecord

if TYPE_CHECKING:
    from onnxport.formats.model import Model
    from onnxport.runtimes.isolation import IsolatedRuntime
    from onnxport.validate.judge import ReferenceRun
    from onnxport.validate.params import ValidateParams
    from onnxport.validate.progress import Tell

_Stamp = tuple[str, tuple[tuple[int, int, int], ...]]


class Sharing:
    """What is loaded and computed once per model and proof; only the last model stays in memory.

    A file that changes between two jobs is read again.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._loaded: tuple[_Stamp, tuple[Model, Artifact, SourceRecord]] | None = None
        self._runs: list[tuple[_Stamp, ValidateParams, ReferenceRun]] = []

    def load(self, source: Artifact) -> tuple[Model, Artifact, SourceRecord]:
        """Return the model with its artefact and origin, see model_sources."""
        if self._loaded is None or self._loaded[0] != _stamp(source):
            self.close()
            model, artifact = load(source)
            self._loaded = _stamp(source), (model, artifact, origin_of(artifact))
        return self._loaded[1]

    def has(self, source: Artifact, params: ValidateParams) -> bool:
        """Return whether there is a reference of this model and proof."""
        return self._find(source, params) is not None

    def reference(
        self,
        source: Artifact,
        params: ValidateParams,
        runtime: IsolatedRuntime | None,
        graph: Model,
        tell: Tell | None,
    ) -> ReferenceRun:
        """Return the reference that answers for all jobs; it takes `runtime` if it is new."""
        # Imported here: conversions without a proof do without it.
        from onnxport.validate.judge import ReferenceRun

        found = self._find(source, params)
        if found is None:
            found = self._stack.enter_context(ReferenceRun(source, params, runtime, graph, tell))
            self._runs.append((_stamp(source), params, found))
        return found

    def _find(self, source: Artifact, params: ValidateParams) -> ReferenceRun | None:
        stamp = _stamp(source)
        return next((run for key, asked, run in self._runs if (key, asked) == (stamp, params)), None)

    def close(self) -> None:
        """Free models and references; calling it again does nothing."""
        self._loaded = None
        self._runs.clear()
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loaded = None
        self._runs.clear()
        self._stack.__exit__(kind, error, trace)


def _stamp(source: Artifact) -> _Stamp:
    """Return what tells a file from another, or from itself after a change; without external data."""
    return str(source.path), Artifact(source.path, source.format).stamp
