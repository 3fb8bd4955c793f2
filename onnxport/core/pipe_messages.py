"""Messages over a pipe between two processes: their length, then their bytes."""

from __future__ import annotations

import contextlib
import os
import select
import struct
from collections.abc import Callable, Iterator

RECREATE = ""  # for the child's object, in place of a method's name
_LENGTH = struct.Struct("<Q")
_WATCH = 0.02  # seconds; in this time a process fills about 100 MB
_PIPE = 1 << 20  # bytes; Linux's default is 64 KiB, its limit for users this


def widen(pipe: int) -> None:
    """Enlarge a pipe's buffer to the system's limit where possible: images need fewer turns."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE)


def write_message(descriptor: int, data: bytes) -> None:
    """Write a message; BrokenPipeError if nobody can read it any more."""
    for chunk in (_LENGTH.pack(len(data)), data):
        view = memoryview(chunk)
        while view:
            view = view[os.write(descriptor, view) :]


def read_message(descriptor: int) -> bytes:
    """Wait for the next message and return it; EOFError at the pipe's end."""
    return read(descriptor, read_length(descriptor))


def read_length(
    descriptor: int, timeout: float | None = None, watch: Callable[[], None] | None = None
) -> int:
    """Wait for the next message and return its number of bytes; see `read`."""
    length: int = _LENGTH.unpack(read(descriptor, _LENGTH.size, timeout, watch))[0]
    return length


def read(
    descriptor: int, wanted: int, timeout: float | None = None, watch: Callable[[], None] | None = None
) -> bytes:
    """Return the next `wanted` bytes.

    Args:
        timeout: seconds to wait for each part of them.
        watch: called in short intervals meanwhile; what it raises ends the wait.

    Raises:
        TimeoutError: nothing came in time.
        EOFError: the pipe has ended.
    """
    return b"".join(_chunks(descriptor, wanted, timeout, watch))


def _chunks(
    descriptor: int, wanted: int, timeout: float | None, watch: Callable[[], None] | None
) -> Iterator[bytes]:
    while wanted:
        _wait(descriptor, timeout, watch)
        chunk = os.read(descriptor, min(wanted, 1 << 20))
        if not chunk:
            raise EOFError
        wanted -= len(chunk)
        yield chunk


def _wait(descriptor: int, timeout: float | None, watch: Callable[[], None] | None) -> None:
    if watch is None:
        if timeout is not None and not select.select([descriptor], [], [], timeout)[0]:
            raise TimeoutError
        return
    import time

    end = None if timeout is None else time.monotonic() + timeout
    while not select.select([descriptor], [], [], _WATCH)[0]:
        watch()
        if end is not None and time.monotonic() >= end:
            raise TimeoutError
