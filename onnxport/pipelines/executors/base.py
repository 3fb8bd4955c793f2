"""The executor protocol: this process (local.py), several processes (processes.py) or a cluster (dask.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from onnxport.pipelines.executors.task import Task
from onnxport.reports.run_report import RunReport


@dataclass(frozen=True)
class Result:
    """The result of a task: a report, or the error that ended it.

    Attributes:
        task: as it ran: its room may differ from the submitted one.
    """

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
