"""How many bytes of intermediate values may be held at once under the user's limit."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onnxport.formats.artifact import Artifact

# Times that a fetched value lies in memory at the worst moment: in the candidate's process as value and message, here
# as message in parts, as message, and as value.
COPIES = 6
# Of the candidate's process: interpreter and libraries, and its weights as file and as packed by kernels.
_PROCESS = 150_000_000
_WEIGHTS = 2


# What a round may show even where the limit cannot be kept.
_LEAST = 8_000_000


@dataclass(frozen=True)
class Room:
    """Bytes of values for one round, and what is to be said about them."""

    bytes: int
    note: str = ""


class Limit:
    """The user's limit on what a search takes, made when it begins.

    What the process that calls `debug_model` held before is the caller's own and does not count; of our command, which
    holds little, everything does.

    Args:
        limit: bytes.
        given: the limit as the user wrote it.
    """

    def __init__(self, limit: int, given: str) -> None:
        self._limit, self._given = limit, given
        self._callers = max(resident() - _PROCESS, 0)
        self._before = peaks()

    def room(self, candidate: Artifact, sizes: Mapping[str, int]) -> Room:
        """What is left for values.

        LiteRT keeps all values when it is to show one; ONNX Runtime those that it is asked for.
        """
        base = max(resident() - self._callers, 0) + _PROCESS + _WEIGHTS * candidate.size
        if candidate.format == "tflite":
            base += sum(sizes.values())
        left = (self._limit - base) // COPIES
        total = sum(sizes.values())
        if left <= _LEAST:
            said = f"the two models alone take about {base / 1e6:.0f} MB, more than --memory-limit allows"
            return Room(_LEAST, f"{said}; as few values as possible are looked at at once")
        if left < total:
            said = (
                f"{total / 1e6:.0f} MB of intermediate values, held {COPIES} times over, "
                "do not fit under --memory-limit"
            )
            return Room(left, f"{said} beside the two models: not all of them are looked at and have figures")
        return Room(left)

    def exceeded(self) -> str:
        """What is to be said if a single process has exceeded the limit; empty where none has.

        What processes take together at one time is not known, so that a little more than the limit may pass unsaid.
        """
        grown = [after for first, after in zip(self._before, peaks(), strict=True) if after > first]
        largest = max(grown, default=0) - self._callers
        if largest <= self._limit:
            return ""
        return (
            f"--memory-limit {self._given} was not kept: one process alone took {largest / 1e6:.0f} MB, which a "
            "model needs at these sizes whatever is looked at"
        )


def peaks() -> tuple[int, ...]:
    """Bytes that this process, and the largest of its ended children, took at most so far; empty where nobody tells."""
    try:
        import resource
    except ImportError:
        return ()
    unit = 1 if sys.platform == "darwin" else 1024
    own, children = (
        unit * resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return own, children
    # Linux hands ru_maxrss on from a large process to what it starts; this peak is the process's own.
    told = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")]
    return (*told[:1], children) if told else (own, children)


def resident() -> int:
    """Bytes of memory that this process takes now, or took at most where only that is known."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    import os

    return pages * os.sysconf("SC_PAGE_SIZE")
