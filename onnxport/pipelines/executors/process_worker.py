"""The worker's side of processes.py: runs tasks and reports progress meanwhile."""

from __future__ import annotations

import pickle
import time
import traceback
from typing import Literal

from onnxport.core.child_process import ChildBug, reuse_children
from onnxport.core.child_server import Parent
from onnxport.exporters.sources import Source
from onnxport.formats.artifact import Artifact
from onnxport.pipelines.executors.base import Result
from onnxport.pipelines.executors.task import Task, perform
from onnxport.pipelines.runner.clock import TIMED
from onnxport.pipelines.runner.shared_references import Sharing

# Messages of a worker: a step begins; its progress; it waits until nothing else computes.
Message = tuple[Literal["phase"], str] | tuple[Literal["progressed"], str, int, int] | tuple[Literal["quiet"]]

_EVERY = 0.2  # seconds between two progress messages
_MOST_SHARED = 100 * 2**20  # bytes of a model; a larger one would fill the memory while its process is idle


class Worker:
    """The object that child_process.Child serves; its tasks of one model and proof share the model and its answers."""

    parent: Parent | None = None

    def __init__(self) -> None:
        self._sparing = reuse_children(several_jobs=True)
        self._sparing.__enter__()  # until the process ends, with its own children
        self._sharing = Sharing()
        self._origin: Artifact | Source | None = None

    def perform(self, task: Task) -> Result:
        """Run `task`; its error, if any, is in the result."""
        assert self.parent is not None
        started = time.perf_counter()
        if task.origin != self._origin:
            self._sharing.close()  # the next model needs the memory
            self._origin = task.origin
        is_small = isinstance(task.origin, Artifact) and task.origin.size <= _MOST_SHARED
        try:
            report = perform(task, _Reporter(self.parent), self._sharing if is_small else None)
        except Exception as error:
            return Result(task, time.perf_counter() - started, failure=without_context(error))
        return Result(task, time.perf_counter() - started, report)


class _Reporter:
    """A Progress that sends messages to the parent."""

    def __init__(self, parent: Parent) -> None:
        self._parent = parent
        self._told = 0.0

    def started(self, step: str) -> None:
        if step == TIMED:
            self._parent.tell(("quiet",))
            self._parent.word()
        self._parent.tell(("phase", step))

    def progressed(self, step: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._told >= _EVERY:
            self._told = now
            self._parent.tell(("progressed", step, done, total))

    def finished(self, step: str, seconds: float) -> None: ...


def without_context(error: Exception) -> Exception:
    """Return `error` in a form that pickles, with its traceback as a note; a ChildBug if it cannot be pickled."""
    error.add_note("".join(traceback.format_exception(error)).rstrip())
    said = f"{type(error).__name__}: {error}"
    error.__cause__ = error.__context__ = None
    try:
        back = pickle.loads(pickle.dumps(error.with_traceback(None)))
    except Exception:
        return ChildBug(said)
    return error if type(back) is type(error) else ChildBug(said)
