"""What this process has in memory.

Linux tells it in /proc/self/status: VmRSS now, VmHWM the most ever. `ru_maxrss` there is none of these: it begins with
what the parent had when it forked, and exec does not set it back. macOS has nothing else, and there it is right.
"""

from __future__ import annotations

import sys

_STATUS = "/proc/self/status"
_KIB = 1024


def resident() -> int:
    """Bytes resident now; the most so far where the system tells no other; 0 where it tells neither."""
    return _line("VmRSS") or peak()


def peak() -> int:
    """The most bytes that were ever resident."""
    return _line("VmHWM") or _most()


def _line(name: str) -> int:
    try:
        with open(_STATUS, "rb") as file:
            for line in file:
                if line.startswith(name.encode()):
                    return int(line.split()[1]) * _KIB
    except OSError:
        pass
    return 0


def _most() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(most if sys.platform == "darwin" else most * _KIB)
