"""The bytes of intermediate values that a search may have in memory under the user's limit."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onnxport.formats.artifact import Artifact

# Copies of a fetched value at the worst moment: in the candidate's process as value and message, here as parts of a
# message, as message, and as value.
COPIES = 6
# The candidate's process: interpreter and libraries, and the weights as file and as packed by kernels.
_PROCESS = 150_000_000
_WEIGHTS = 2


# Bytes that a round may show even beyond the limit.
_LEAST = 8_000_000


@dataclass(frozen=True)
class Room:
    """Bytes of values for one round, and a note on them."""

    bytes: int
    note: str = ""


class Limit:
    """The user's limit on the memory of a search; create it when the search begins.

    Memory that a caller of `debug_model` used before does not count; our command uses little, and all of it counts.

    Args:
        limit: bytes.
        given: the limit as the user wrote it.
    """

    def __init__(self, limit: int, given: str) -> None:
        self._limit, self._given = limit, given
        self._callers = max(resident() - _PROCESS, 0)
        self._before = peaks()

    def room(self, candidate: Artifact, sizes: Mapping[str, int]) -> Room:
        """Return the memory left for values.

        LiteRT keeps all values to show one; ONNX Runtime only those that are fetched.
        """
        base = max(resident() - self._callers, 0) + _PROCESS + _WEIGHTS * candidate.size
        if candidate.format == "tflite":
            base += sum(sizes.values())
        left = (self._limit - base) // COPIES
        total = sum(sizes.values())
        if left <= _LEAST:
            return Room(
                _LEAST,
                f"the two models alone take about {base / 1e6:.0f} MB, more than --memory-limit allows; each round "
                "shows as few values as possible",
            )
        if left < total:
            return Room(
                left,
                f"{total / 1e6:.0f} MB of intermediate values, in {COPIES} copies, do not fit under --memory-limit "
                "beside the two models: only some of them have figures",
            )
        return Room(left)

    def exceeded(self) -> str:
        """Return a note if a single process exceeded the limit; empty for none.

        The memory of several processes at one time is not known, so a little more than the limit may go unnoticed.
        """
        grown = [after for first, after in zip(self._before, peaks(), strict=True) if after > first]
        largest = max(grown, default=0) - self._callers
        if largest <= self._limit:
            return ""
        return (
            f"--memory-limit {self._given} was not kept: one process alone took {largest / 1e6:.0f} MB, which the "
            "model needs at these sizes"
        )


def peaks() -> tuple[int, ...]:
    """Return the peak bytes of this process and of its largest ended child; empty where the system has no figures."""
    try:
        import resource
    except ImportError:
        return ()
    unit = 1 if sys.platform == "darwin" else 1024
    own, children = (
        unit * resource.getrusage(whose).ru_maxrss
        for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return own, children
    # On Linux a process inherits ru_maxrss of a large parent; this peak is its own.
    own_peak = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")]
    return (*own_peak[:1], children) if own_peak else (own, children)


def resident() -> int:
    """Return the bytes of memory of this process now, or its peak where only that is known."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    import os

    return pages * os.sysconf("SC_PAGE_SIZE")
