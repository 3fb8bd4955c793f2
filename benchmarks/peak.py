"""Measure the peak memory of a process and all its children while another function waits for it."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from benchmarks.memory import proportional, tree

_EVERY = 0.1  # seconds: the look costs the watched processes time


class Peak:
    """Watches the tree of processes below `pid` while its block runs; `megabytes` afterwards, 0 where not on Linux."""

    def __init__(self, pid: int) -> None:
        self._pid, self._done = pid, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.megabytes = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(_EVERY):
            self.megabytes = max(self.megabytes, sum(map(proportional, tree(self._pid))) / 1e6)
