"""The steps of a run: their progress and their times."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from onnxport.reports.run_report import Timing

# The step that times models: nothing else of the run may compute meanwhile.
TIMED = "latency"


class Progress(Protocol):
    """Receives the steps of a run; every `started` is followed by a `finished`, even after a failure."""

    def started(self, step: str) -> None: ...

    def progressed(self, step: str, done: int, total: int) -> None: ...

    def finished(self, step: str, seconds: float) -> None: ...


class Silent:
    """Shows nothing."""

    def started(self, step: str) -> None: ...

    def progressed(self, step: str, done: int, total: int) -> None: ...

    def finished(self, step: str, seconds: float) -> None: ...


class Clock:
    """Times steps and reports them to the progress display."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress or Silent()
        self._started = time.perf_counter()
        self.timings: list[Timing] = []
        self._step = ""

    @contextmanager
    def phase(self, step: str) -> Iterator[None]:
        self._step = step
        self._progress.started(step)  # may wait for other tasks
        started = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - started
            self._progress.finished(step, seconds)
            self.timings.append(Timing(step=step, seconds=round(seconds, 4)))

    def announce(self, step: str) -> None:
        """Show what the next phase does, without a time of its own."""
        self._progress.started(step)
        self._progress.finished(step, 0.0)

    def progress(self, done: int, total: int) -> None:
        """Report the progress of the current phase."""
        self._progress.progressed(self._step, done, total)

    def tell(self, what: str, done: int, total: int) -> None:
        """Report, from any thread, how far a part of the current phase is."""
        self._progress.progressed(f"{self._step}: {what}", done, total)

    def aside(self, step: str, seconds: float) -> None:
        """Record a step that ran in parallel."""
        self.timings.append(Timing(step=step, seconds=round(seconds, 4), parallel=True))

    @property
    def seconds(self) -> float:
        return round(time.perf_counter() - self._started, 4)
