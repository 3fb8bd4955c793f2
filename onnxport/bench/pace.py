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
_LEAST = 0.2  # seconds; the system counts in hundredths


class Pace:
    """Asked between rounds; a reading takes about a quarter of a millisecond."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._began: tuple[float, float, float] | None = None
        self._others: float | None = None

    def read(self, children: float) -> None:
        """Does the piece of work a few times, and looks who had the cores since the first reading.

        Args:
            children: seconds that processes of ours have computed so far, beside this one.
        """
        for _ in range(_PIECES):
            started = time.perf_counter()
            hashlib.sha256(_PIECE).digest()
            self._seconds.append(time.perf_counter() - started)
        busy = _busy()
        if busy is None:
            return
        now = (time.perf_counter(), busy, children + time.process_time())
        self._began = self._began or now
        passed, worked, own = (after - before for after, before in zip(now, self._began, strict=True))
        if passed > _LEAST:
            self._others = max(0.0, worked - own) / (passed * (os.cpu_count() or 1))

    @property
    def least_ms(self) -> float | None:
        """Of the piece, by what a fifth of the readings stay below; None before the first."""
        if not self._seconds:
            return None
        return float(f"{1000 * sorted(self._seconds)[len(self._seconds) // 5]:.5g}")

    @property
    def others(self) -> float | None:
        """Of the cores' time since the first reading, the share that others had; None where the system is silent."""
        return None if self._others is None else round(self._others, 3)


def _busy() -> float | None:
    """Seconds that all cores together were at work since the machine's start; None where it does not tell."""
    with contextlib.suppress(OSError, ValueError), open("/proc/stat", encoding="utf-8") as file:
        user, nice, system, _idle, _waiting, *interrupts = map(int, file.readline().split()[1:8])
        return float(user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
    return None
