"""Who performs a run's tasks: this process (local.py), several (processes.py) or a cluster (cluster.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from onnxport.pipelines.executors.task import Task
from onnxport.reports.run_report import RunReport


@dataclass(frozen=True)
class Result:
    """What became of a task: a report, or the error that ended it.

    Attributes:
        task: as it was performed: the room may be another than that which was submitted.
    """

    task: Task
    seconds: float
    report: RunReport | None = None
    failure: Exception | None = None


class Executor(Protocol):
    """Performs tasks, of which none needs another's result."""

    def submit(self, task: Task) -> None:
        """Has `task` done, now or when there is room for it."""
        ...

    def next(self) -> Result:
        """Waits for a task that was submitted; each comes once."""
        ...

    def close(self) -> None:
        """Ends at once what still runs."""
        ...
