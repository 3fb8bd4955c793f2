"""The protocols of executors: run tasks here (local.py), in processes (processes.py) or on a cluster (dask.py); report
their progress to a watcher."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from onnxport.core.resources import Closing
from onnxport.exporters.sources import Source
from onnxport.formats.artifact import Artifact
from onnxport.pipelines.config.pipeline import Node
from onnxport.pipelines.executors.task import Task, perform
from onnxport.pipelines.runner.shared_references import Sharing
from onnxport.reports.pipeline_report import NodeRecord
from onnxport.reports.run_report import RunReport


@dataclass(frozen=True)
class Result:
    """The result of a task, in the room where it ran: a report, or the error that ended it."""

    task: Task
    seconds: float
    report: RunReport | None = None
    failure: Exception | None = None


class Executor(Protocol):
    """Runs tasks, none of which needs another's result."""

    def submit(self, task: Task) -> None:
        """Run `task`, now or when resources allow."""
        ...

    def next(self) -> Result:
        """Wait for the next result; each submitted task has one."""
        ...

    def close(self) -> None:
        """Stop all running tasks at once."""
        ...


class Watcher(Protocol):
    """Receives the progress of a run, from one thread at a time."""

    def begun(self, nodes: Sequence[Node], jobs: int) -> None:
        """The run has begun: it needs `nodes`, at most `jobs` of them at a time."""
        ...

    def started(self, node: str) -> None:
        """The node is being made."""
        ...

    def phase(self, node: str, step: str) -> None: ...

    def progressed(self, node: str, step: str, done: int, total: int) -> None: ...

    def node(self, record: NodeRecord) -> None:
        """A node is done, came from the cache, failed or will not run."""
        ...


class Unwatched:
    """A Watcher that shows nothing."""

    def begun(self, nodes: Sequence[Node], jobs: int) -> None: ...

    def started(self, node: str) -> None: ...

    def phase(self, node: str, step: str) -> None: ...

    def progressed(self, node: str, step: str, done: int, total: int) -> None: ...

    def node(self, record: NodeRecord) -> None: ...

    def dashboard(self, link: str) -> None:
        """The cluster shows its state at this URL."""


@dataclass(frozen=True)
class Phases:
    """A Progress that reports the phases of `node` to a watcher."""

    watcher: Watcher
    node: str

    def started(self, step: str) -> None:
        self.watcher.phase(self.node, step)

    def progressed(self, step: str, done: int, total: int) -> None:
        self.watcher.progressed(self.node, step, done, total)

    def finished(self, step: str, seconds: float) -> None: ...


class Local(Closing):
    """Runs tasks here, in turns; those of one model and proof share the model and its answers."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher, self._sharing = watcher, Sharing()
        self._tasks: list[Task] = []
        self._origin: Artifact | Source | None = None

    def submit(self, task: Task) -> None:
        self._tasks.append(task)

    def next(self) -> Result:
        task = self._take()
        self._watcher.started(task.node)
        started = time.perf_counter()
        try:
            report = perform(task, Phases(self._watcher, task.node), self._sharing)
        except Exception as error:
            return Result(task, time.perf_counter() - started, failure=error)
        return Result(task, time.perf_counter() - started, report)

    def _take(self) -> Task:
        """Return the next task: of the same model as the last, if there is one."""
        task = next((each for each in self._tasks if each.origin == self._origin), self._tasks[0])
        self._tasks.remove(task)
        self._origin = task.origin
        return task

    def close(self) -> None:
        self._tasks.clear()
        self._sharing.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tasks.clear()
        self._sharing.__exit__(kind, error, trace)
