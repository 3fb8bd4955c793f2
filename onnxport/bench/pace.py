"""How fast this machine is just now, whatever the models: a fixed piece of work that fits into the nearest caches.

Two runs of a model at different times differ by the clock's frequency and by what shares the core beside what the model
does. A digest of 64 KiB takes one core, no memory and no library of ours; what it takes more than then, the machine
takes more. A second figure says how much of the cores programs of others had.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time

_PIECE = bytes(64 * 1024)
_PIECES = 4


class Pace:
    """Asked between rounds; a reading takes about a quarter of a millisecond."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._began = _ticks()
        self._own = _own()

    def read(self) -> None:
        """Does the piece of work a few times."""
        for _ in range(_PIECES):
            started = time.perf_counter()
            hashlib.sha256(_PIECE).digest()
            self._seconds.append(time.perf_counter() - started)

    @property
    def least(self) -> float | None:
        """Seconds of the piece when nobody disturbed it; None before the first reading."""
        return min(self._seconds, default=None)


def _ticks() -> int | None:
    """Ticks that all cores were at work since the start of the machine; None where it does not tell."""
    with contextlib.suppress(OSError, ValueError), open("/proc/stat", encoding="utf-8") as file:
        user, nice, system, _idle, _wait, *rest = map(int, file.readline().split()[1:])
        return user + nice + system + sum(rest[:3])
    return None


def _own() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
