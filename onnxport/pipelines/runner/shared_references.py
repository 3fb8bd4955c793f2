"""The models and the references' answers that several jobs of one command have in common."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass
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


@dataclass(frozen=True)
class _Loaded:
    """A model with its artefact and origin, and the artefact's files as they were then."""

    model: Model
    artifact: Artifact
    origin: SourceRecord
    stamp: object


class Sharing:
    """What is loaded and computed once per model and proof; only the last model stays in memory.

    A model whose files change between two jobs is read again.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._loaded: _Loaded | None = None
        self._runs: list[tuple[ValidateParams, ReferenceRun]] = []

    def load(self, source: Artifact) -> tuple[Model, Artifact, SourceRecord]:
        """Return the model with its artefact and origin, see model_sources."""
        if self._loaded is None or not self._is_current(source):
            self.close()
            model, artifact = load(source)
            self._loaded = _Loaded(model, artifact, origin_of(artifact), artifact.stamp)
        return self._loaded.model, self._loaded.artifact, self._loaded.origin

    def has(self, source: Artifact, params: ValidateParams) -> bool:
        """Return whether there is a reference of this model and proof."""
        return self._is_current(source) and self._find(params) is not None

    def reference(
        self,
        source: Artifact,
        params: ValidateParams,
        runtime: IsolatedRuntime | None,
        graph: Model,
        tell: Tell | None,
    ) -> ReferenceRun:
        """Return the reference that answers for all jobs with the loaded model; it takes `runtime` if it is new."""
        # Imported here: conversions without a proof do without it.
        from onnxport.validate.judge import ReferenceRun

        found = self._find(params)
        if found is None:
            found = self._stack.enter_context(ReferenceRun(source, params, runtime, graph, tell))
            self._runs.append((params, found))
        return found

    def _find(self, params: ValidateParams) -> ReferenceRun | None:
        return next((run for asked, run in self._runs if asked == params), None)

    def _is_current(self, source: Artifact) -> bool:
        """Return whether this is the loaded model, with unchanged files."""
        loaded = self._loaded
        with suppress(OSError):  # a file is gone
            return (
                loaded is not None
                and loaded.artifact.path == source.path
                and loaded.artifact.stamp == loaded.stamp
            )
        return False

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
