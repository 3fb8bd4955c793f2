"""Wall time and CPU time per stage, of one process; kept in a mapped file, since children are killed."""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# In the order of the table.
STAGES = (
    "imports",
    "load",
    "digests",
    "precision",
    "inputs",
    "sessions",
    "reference",
    "probes",
    "evidence",
    "prepare",
    "lower",
    "compile",
    "trial run",
    "candidate",
    "comparison",
    "writing",
    "report",
    "processes",
    "waiting",
    "rest",
)
# What another process counts, as a run that it called for.
ELSEWHERE = ""
_ENTRY = struct.Struct("<ddd")


@dataclass
class Entry:
    """The sums of one stage, in seconds.

    Attributes:
        wall: of all threads that were in it.
        cpu: of these threads.
        called: CPU time of children that worked for it meanwhile.
    """

    wall: float = 0.0
    cpu: float = 0.0
    called: float = 0.0

    def __add__(self, other: Entry) -> Entry:
        return Entry(self.wall + other.wall, self.cpu + other.cpu, self.called + other.called)


@dataclass
class _Open:
    """A stage that a thread is in, since it began or went on."""

    name: str
    wall: float
    cpu: float


class Ledger:
    """Sums of a process's stages; a stage within another counts for itself alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._begin()
        os.register_at_fork(after_in_child=self._begin_copy)

    def _begin(self) -> None:
        self._entries = {stage: Entry() for stage in STAGES}
        self._lock, self._local = threading.Lock(), threading.local()
        with (self._folder / f"{os.getpid()}").open("w+b") as file:
            file.truncate(_ENTRY.size * len(STAGES))
            self._file = mmap.mmap(file.fileno(), 0)

    def _begin_copy(self) -> None:
        """Count a copy of the process for itself; it never leaves the stages that its parent was in."""
        self._begin()
        self._local.stack = [_Open("rest", time.perf_counter(), time.thread_time())]

    @property
    def current(self) -> str:
        """The stage of this thread; empty for none."""
        stack = getattr(self._local, "stack", None)
        return stack[-1].name if stack else ""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the block for a stage, and no longer for the one around it."""
        stack = self._local.__dict__.setdefault("stack", [])
        self._count(stack)
        stack.append(_Open(name, time.perf_counter(), time.thread_time()))
        try:
            yield
        finally:
            self._count(stack)
            stack.pop()
            if stack:
                stack[-1].wall, stack[-1].cpu = time.perf_counter(), time.thread_time()

    def called(self, seconds: float) -> None:
        """Count the CPU time of a child for the current stage."""
        self._add(self.current or "rest", Entry(called=seconds))

    def _count(self, stack: list[_Open]) -> None:
        """Count what passed since the innermost stage began or went on."""
        if stack:
            last = stack[-1]
            if last.name != ELSEWHERE:
                entry = Entry(time.perf_counter() - last.wall, time.thread_time() - last.cpu)
                self._add(last.name, entry)

    def _add(self, name: str, entry: Entry) -> None:
        with self._lock:
            sums = self._entries[name] = self._entries[name] + entry
            _ENTRY.pack_into(self._file, STAGES.index(name) * _ENTRY.size, sums.wall, sums.cpu, sums.called)


def read(file: Path) -> dict[str, Entry]:
    """Return the sums of a process that has ended."""
    data = file.read_bytes()
    return {stage: Entry(*_ENTRY.unpack_from(data, at * _ENTRY.size)) for at, stage in enumerate(STAGES)}
