"""The pace of this machine, independent of models: the time of a fixed piece of work that fits into the nearest caches.

A digest of 64 KiB needs one core, no memory and no library: if it takes longer than before, so does everything on this
machine. A second figure is the share of the cores that other programs used.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time

_PIECE = bytes(64 * 1024)
_PIECES = 4
_LEAST = 0.2  # seconds between readings; the system counts in hundredths


class Pace:
    """Readings between rounds; each takes about a quarter of a millisecond."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._first: tuple[float, float, float] | None = None
        self._others: float | None = None

    def read(self, children: float) -> None:
        """Time the piece of work, and update the share of other programs; `children` are our CPU seconds."""
        for _ in range(_PIECES):
            started = time.perf_counter()
            hashlib.sha256(_PIECE).digest()
            self._seconds.append(time.perf_counter() - started)
        busy = _busy_seconds()
        if busy is None:
            return
        now = (time.perf_counter(), busy, children + time.process_time())
        self._first = self._first or now
        passed, worked, own = (after - before for after, before in zip(now, self._first, strict=True))
        if passed > _LEAST:
            self._others = max(0.0, worked - own) / (passed * (os.cpu_count() or 1))

    @property
    def least_ms(self) -> float | None:
        """The time of the piece, at the first quintile; None before the first reading."""
        if not self._seconds:
            return None
        return float(f"{1000 * sorted(self._seconds)[len(self._seconds) // 5]:.5g}")

    @property
    def others(self) -> float | None:
        """The share of the cores' time that other programs used since the first reading; None where unknown."""
        return None if self._others is None else round(self._others, 3)


def _busy_seconds() -> float | None:
    """Return the busy seconds of all cores since the machine's start; None where unknown."""
    with contextlib.suppress(OSError, ValueError), open("/proc/stat", encoding="utf-8") as file:
        user, nice, system, _idle, _waiting, *interrupts = map(int, file.readline().split()[1:8])
        return float(user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
    return None
