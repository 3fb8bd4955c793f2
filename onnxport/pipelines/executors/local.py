"""Runs tasks in this process, one after the other."""

from __future__ import annotations

import time
from collections import deque

from onnxport.core.resources import Closing
from onnxport.pipelines.executors.base import Phases, Result, Watcher
from onnxport.pipelines.executors.task import Task, perform


class Local(Closing):
    """See base.Executor."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._tasks: deque[Task] = deque()

    def submit(self, task: Task) -> None:
        self._tasks.append(task)

    def next(self) -> Result:
        task = self._tasks.popleft()
        self._watcher.started(task.node)
        started = time.perf_counter()
        try:
            report = perform(task, Phases(self._watcher, task.node))
        except Exception as error:
            return Result(task, time.perf_counter() - started, failure=error)
        return Result(task, time.perf_counter() - started, report)

    def close(self) -> None:
        self._tasks.clear()
