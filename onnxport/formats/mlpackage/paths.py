"""The files that a package names: a package of others may name what is none of it, or no file at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path, PurePosixPath

# A protobuf message has no more bytes; what a hole in a file claims to have is not read into memory.
_LARGEST_MESSAGE = (1 << 31) - 1


def inside(root: Path, name: str) -> Path:
    """The regular file that a package calls `name`, below its folder `root`. It may be a link, as download caches make.

    Raises:
        ValueError: the name leads out of the folder, or to something that is no file.
        FileNotFoundError: there is no such file.
    """
    steps = PurePosixPath(name)
    if not name or steps.is_absolute() or ".." in steps.parts or "\\" in name or "\0" in name:
        raise ValueError(f"it names {name[:100]!r}, which is no file in it")
    file = root / steps
    if not file.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))
    if not file.is_file():  # a device or a pipe never ends, or never begins
        raise ValueError(f"{file.name} is no regular file")
    return file


def message(file: Path) -> bytes:
    """What a file with a protobuf message holds.

    Raises:
        ValueError: more than any such message has.
    """
    if file.stat().st_size > _LARGEST_MESSAGE:
        raise ValueError(f"{file.name} has {file.stat().st_size} bytes, more than any model")
    return file.read_bytes()
