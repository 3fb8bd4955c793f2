"""Read files of others through one descriptor: what is checked is what is read, whatever the name leads to by then."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_CHUNK = 1 << 20  # bytes, of a file that says less than it has


class NotRegularError(ValueError):
    """A device or a pipe, which reading may never end."""


class TooLargeError(ValueError):
    """A file above the limit; `size` is its bytes, as far as known."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size:,} bytes")
        self.size = size


class OutsideError(ValueError):
    """A link that leads out of the folder."""


def read_regular(path: Path, most: int, within: Path | None = None) -> bytes:
    """Return the content of a regular file of at most `most` bytes, which lies in the folder `within` if that is given.

    Raises:
        OSError: it cannot be read, or is a folder (IsADirectoryError).
        NotRegularError, TooLargeError, OutsideError: it is not such a file.
    """
    opened = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with os.fdopen(opened, "rb") as stream:
        found = os.fstat(opened)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(found.st_mode):
            raise NotRegularError("not a regular file")
        if within is not None and not _leads_into(opened, path, within):
            raise OutsideError(str(path))
        if found.st_size > most:
            raise TooLargeError(found.st_size)
        content = stream.read(found.st_size + 1)
        while len(content) <= most and (more := stream.read(_CHUNK)):
            content += more
    if len(content) > most:  # it grew, or is one of /proc
        raise TooLargeError(len(content))
    return content


def _leads_into(opened: int, path: Path, folder: Path) -> bool:
    """Return whether a descriptor's file lies in the folder: by the system's name for it, else by that of its path."""
    name = Path(f"/proc/self/fd/{opened}")
    real = name.resolve() if name.exists() else path.resolve()
    return real.is_relative_to(folder.resolve()) and os.path.samestat(os.fstat(opened), os.stat(real))
