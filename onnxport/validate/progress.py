"""Progress of what takes long."""

from __future__ import annotations

import time
from collections.abc import Callable

# Receives what is done, how many of it, and of how many.
Tell = Callable[[str, int, int], None]

SILENT = 5.0  # seconds without a report of progress


class Counter:
    """Reports the progress of repeated work once it has taken SILENT seconds.

    Args:
        what: the work, for people: "input set".
    """

    def __init__(self, tell: Tell | None, what: str) -> None:
        self._tell, self._what, self._began = tell, what, time.monotonic()

    def count(self, done: int, total: int) -> None:
        """Report that `done` of about `total` are done."""
        if self._tell is not None and time.monotonic() - self._began >= SILENT:
            self._tell(self._what, done, max(done, total))
