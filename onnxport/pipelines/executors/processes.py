"""Runs tasks in several processes of this machine, as many at a time as fit in memory.

Each process is a Child that runs one task after the other and ends with this one. If it dies, another process runs its
task again, once: alone if the process was killed, as the system does when memory runs out. A task that times its
product waits until nothing else of the run computes, and nothing starts before it is done.
"""

from __future__ import annotations

import select
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace

from onnxport.core.child_process import Child, ChildDied
from onnxport.core.errors import MachineError
from onnxport.core.resources import Closing
from onnxport.exporters.sources import Source
from onnxport.formats.artifact import Artifact
from onnxport.pipelines.executors.base import Result, Watcher
from onnxport.pipelines.executors.memory import estimate
from onnxport.pipelines.executors.process_worker import Message
from onnxport.pipelines.executors.task import Task

_WORKER = "onnxport.pipelines.executors.process_worker:Worker"
# What every task uses. This process has no use for the judge and the preparation itself, but loads them once.
_SHARED = (
    "onnxport.formats.model",
    "onnxport.optimizers.canonical_form",
    "onnxport.pipelines.executors.process_worker",
    "onnxport.pipelines.runner.judges",
)
_BEGINNINGS = 2  # of a task: its process may be killed before it takes the task


@dataclass
class _Attempt:
    """A task that waits or runs.

    Attributes:
        again: whether its first process died.
        alone: whether nothing else may run beside it.
        asks: whether it waits to be timed, or has been.
        timed: whether nothing else computes until it ends.
    """

    task: Task
    memory: int
    again: bool = False
    alone: bool = False
    asks: bool = False
    timed: bool = False
    started: float = 0.0


class Processes(Closing):
    """The executor in at most `jobs` processes with `limit` bytes together, if any. A larger task runs alone."""

    def __init__(self, jobs: int, limit: int | None, watcher: Watcher) -> None:
        self._jobs, self._limit, self._watcher = jobs, limit, watcher
        self._waiting: deque[_Attempt] = deque()
        self._busy: dict[Child, _Attempt] = {}
        self._idle: dict[Child, Artifact | Source] = {}  # and what they worked on last
        self._done: deque[Result] = deque()

    def submit(self, task: Task) -> None:
        self._waiting.append(_Attempt(task, estimate(task)))
        self._start()

    def next(self) -> Result:
        while not self._done:
            ready, _, _ = select.select(list(self._busy), [], [])
            for child in ready:
                self._receive(child)
            self._grant_quiet()
            self._start()
        return self._done.popleft()

    def close(self) -> None:
        """Kill the processes; their children end with them."""
        for child in (*self._busy, *self._idle):
            child.close()
        self._busy, self._idle = {}, {}

    def _start(self) -> None:
        """Start waiting tasks, in their order as far as memory allows."""
        for attempt in tuple(self._waiting):
            if len(self._busy) == self._jobs:
                return
            if self._fits(attempt):
                self._waiting.remove(attempt)
                self._begin(attempt)

    def _fits(self, attempt: _Attempt) -> bool:
        beside = self._busy.values()
        if not beside:
            return True
        if attempt.alone or any(each.alone or each.asks for each in beside):
            return False
        return self._limit is None or attempt.memory + sum(each.memory for each in beside) <= self._limit

    def _begin(self, attempt: _Attempt) -> None:
        attempt.started = time.perf_counter()
        # First those that have the model already; one may have died meanwhile.
        for child in sorted(self._idle, key=lambda each: self._idle[each] != attempt.task.origin):
            del self._idle[child]
            if self._hand_to(child, attempt):
                return
        for _ in range(_BEGINNINGS):
            worker = Child(_WORKER, purpose="a worker process", timeout=None, shares=_SHARED)
            if self._hand_to(worker, attempt):
                return
        raise MachineError("a worker process ended before it began")

    def _hand_to(self, child: Child, attempt: _Attempt) -> bool:
        try:
            child.ask("perform", attempt.task)
        except ChildDied:
            child.close()
            return False
        self._busy[child] = attempt
        self._watcher.started(attempt.task.node)
        return True

    def _receive(self, child: Child) -> None:
        attempt = self._busy[child]
        try:
            is_over, said = child.hear()
        except ChildDied as death:
            child.close()
            del self._busy[child]
            seconds = time.perf_counter() - attempt.started
            self._finish(attempt, Result(attempt.task, seconds, failure=death))
            return
        if is_over:
            del self._busy[child]
            self._idle[child] = attempt.task.origin
            self._finish(attempt, said)
        else:
            self._show(attempt, said)

    def _show(self, attempt: _Attempt, word: Message) -> None:
        node = attempt.task.node
        match word:
            case ("quiet",):
                attempt.asks = True
                self._watcher.phase(node, "waiting for the latency measurement")
            case ("phase", step):
                self._watcher.phase(node, step)
            case ("progressed", step, done, total):
                self._watcher.progressed(node, step, done, total)

    def _grant_quiet(self) -> None:
        """Let one task be timed when all others wait too; nothing else computes until it ends."""
        running = self._busy.values()
        if any(each.timed or not each.asks for each in running):
            return
        for child, attempt in self._busy.items():
            attempt.timed = True
            with suppress(ChildDied):  # the next receive sees it
                child.reply("go on")
            return

    def _finish(self, attempt: _Attempt, result: Result) -> None:
        """Store a result, or run the task again if its process died."""
        killed = was_killed(result.failure)
        if killed is None or attempt.again:
            self._done.append(result)
            return
        # Children of the dead process may still write to its room.
        room = attempt.task.room.with_name(f"{attempt.task.room.name}-again")
        room.mkdir()
        again = replace(attempt.task, room=room)
        self._waiting.appendleft(_Attempt(again, attempt.memory, again=True, alone=killed))


def was_killed(failure: Exception | None) -> bool | None:
    """Return whether a task's process was killed, as when memory runs out; None if the process did not end."""
    if isinstance(failure, ChildDied):
        return failure.killed
    return True if isinstance(failure, MemoryError) else None
