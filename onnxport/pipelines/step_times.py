"""What a run is doing and how long each step of it took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from onnxport.reports.run_report import Timing

# The step that times models: whoever runs several tasks at once has nothing else compute meanwhile.
TIMED = "latency"


class Progress(Protocol):
    """How a run tells what it is doing; every `started` is followed by a `finished`, failed or not."""

    def started(self, step: str) -> None: ...

    def progressed(self, step: str, done: int, total: int) -> None: ...

    def finished(self, step: str, seconds: float) -> None: ...


class Silent:
    """No progress display."""

    def started(self, step: str) -> None: ...

    def progressed(self, step: str, done: int, total: int) -> None: ...

    def finished(self, step: str, seconds: float) -> None: ...


class Clock:
    """Times steps and tells the progress display of them."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress or Silent()
        self._started = time.perf_counter()
        self.timings: list[Timing] = []
        self._step = ""

    @contextmanager
    def phase(self, step: str) -> Iterator[None]:
        self._step = step
        self._progress.started(step)  # which may have to wait for others
        started = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - started
            self._progress.finished(step, seconds)
            self.timings.append(Timing(step=step, seconds=round(seconds, 4)))

    def progress(self, done: int, total: int) -> None:
        """Tells how far the phase that runs has come."""
        self._progress.progressed(self._step, done, total)

    def searching(self, done: int, total: int) -> None:
        """Tells, from any thread, how many seconds of `total` a search for sizes has taken."""
        self._progress.progressed(f"{self._step}: searching sizes, second", done, total)

    def aside(self, step: str, seconds: float) -> None:
        """Records a step that ran beside the others."""
        self.timings.append(Timing(step=step, seconds=round(seconds, 4), parallel=True))

    @property
    def seconds(self) -> float:
        return round(time.perf_counter() - self._started, 4)
