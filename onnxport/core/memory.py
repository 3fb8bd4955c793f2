"""Sizes in memory: the users' syntax, and the machine's memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from pathlib import Path

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?)B?", re.IGNORECASE)
_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_GROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def bytes_of(text: str) -> int:
    """Parse "2GB", "500 MB" or "4096" into bytes, in decimal units; raises ValueError for any other text."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or not float(match.group(1)):
        raise ValueError("give a size such as 500MB or 2GB")
    number, unit = match.groups()
    return int(float(number) * _UNITS[unit.lower()])


def return_freed_memory() -> None:
    """Return what this process has freed to the system, where the C library keeps it: glibc's does."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def machine_memory() -> int | None:
    """Return the bytes of the machine, or of this process's control group; None where unknown."""
    found = [each for each in (_physical(), *map(_of_group, _GROUP_LIMITS)) if each is not None]
    return min(found, default=None)


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _of_group(limit: Path) -> int | None:
    try:
        return int(limit.read_text())
    except (OSError, ValueError):  # no such file, or the word "max"
        return None
