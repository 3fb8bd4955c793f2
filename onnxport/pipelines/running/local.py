"""Performs tasks in this process, one after the other."""

from __future__ import annotations

import time
from collections import deque

from onnxport.pipelines.clock import Progress
from onnxport.pipelines.running.conducting import Result
from onnxport.pipelines.running.task import Task, perform


class Local:
    """See conducting.Executor."""

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress
        self._tasks: deque[Task] = deque()

    def submit(self, task: Task) -> None:
        self._tasks.append(task)

    def next(self) -> Result:
        task = self._tasks.popleft()
        started = time.perf_counter()
        try:
            report = perform(task, self._progress)
        except Exception as error:
            return Result(task, time.perf_counter() - started, failure=error)
        return Result(task, time.perf_counter() - started, report)
