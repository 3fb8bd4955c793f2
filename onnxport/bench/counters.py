"""Counters of the measuring process: memory, CPU time and energy; needs the standard library only.

Memory: Linux has VmRSS (now) and VmHWM (peak) in /proc/self/status. `ru_maxrss` starts there at the parent's value
when it forked; on macOS it is right, and the only figure.

CPU time: the process's sum counts a running thread only up to the last tick, several runs of a small model ago. The
clock of each thread is exact; Linux has these by number (include/linux/posix-timers.h).

Energy: RAPL, in /sys/class/powercap, of the processor's packages; since 2020 only root may read it by default. It
includes other programs and idle power.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence

_STATUS = "/proc/self/status"
_KIB = 1024


def resident_memory() -> int:
    """Return the resident bytes; the peak where the system has only that; 0 where it has neither."""
    return _status("VmRSS") or peak_memory()


def peak_memory() -> int:
    """Return the peak of resident bytes."""
    return _status("VmHWM") or _max_rss()


def _status(name: str) -> int:
    try:
        with open(_STATUS, "rb") as file:
            for line in file:
                if line.startswith(name.encode()):
                    return int(line.split()[1]) * _KIB
    except OSError:
        pass
    return 0


def _max_rss() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(most if sys.platform == "darwin" else most * _KIB)


_THREAD_CLOCK = 6  # CPUCLOCK_SCHED of one thread
_MOST_THREADS = 32  # reading more clocks would take longer than a run


class CpuClock:
    """The CPU time of the threads that exist when it is made."""

    def __init__(self) -> None:
        self._clocks = _clocks()

    def nanoseconds(self) -> int:
        """Return the CPU time of all threads; only differences have a meaning."""
        if self._clocks:
            try:
                return sum(map(time.clock_gettime_ns, self._clocks))
            except OSError:  # one has ended
                self._clocks = []
        return time.process_time_ns()


def _clocks() -> list[int]:
    if sys.platform != "linux":
        return []
    try:
        threads = [int(name) for name in os.listdir("/proc/self/task")]
        clocks = [(~thread << 3) | _THREAD_CLOCK for thread in threads]
        for clock in clocks:
            time.clock_gettime_ns(clock)
    except OSError:
        return []
    return clocks if len(clocks) <= _MOST_THREADS else []


ROOT = "/sys/class/powercap"
_MICRO = 1e-6


class EnergyCounters:
    """The energy counters of all packages; none where they cannot be read."""

    def __init__(self, root: str = ROOT) -> None:
        self._zones = [zone for zone in _packages(root) if _number(zone, "energy_uj") is not None]

    def read(self) -> tuple[int, ...]:
        """Return microjoules of each package; only differences have a meaning."""
        return tuple(_number(zone, "energy_uj") or 0 for zone in self._zones)

    def joules(self, before: Sequence[int], after: Sequence[int]) -> float | None:
        """Return the energy between two readings less than a minute apart; None without counters."""
        if not self._zones:
            return None
        used = 0
        for zone, first, last in zip(self._zones, before, after, strict=True):
            used += last - first + (0 if last >= first else _number(zone, "max_energy_range_uj") or 0)
        return used * _MICRO


def _packages(root: str) -> list[str]:
    """Return the zones of packages, not their parts, the platform ("psys") or the copies of intel-rapl-mmio."""
    try:
        zones = sorted(
            name for name in os.listdir(root) if name.startswith("intel-rapl:") and name.count(":") == 1
        )
    except OSError:
        return []
    found = [os.path.join(root, zone) for zone in zones]
    return [zone for zone in found if _text(zone, "name").startswith("package")]


def _number(zone: str, name: str) -> int | None:
    text = _text(zone, name)
    return int(text) if text.isdigit() else None


def _text(zone: str, name: str) -> str:
    try:
        with open(os.path.join(zone, name), encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
