"""File operations of the cache: list, share without a copy, flush to the disk."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

_FICLONE = 0x40049409  # linux/fs.h
# Errors of systems without hard links here, or without links to another user's file.
_NO_LINK = {
    *(errno.EPERM, errno.EACCES, errno.EXDEV, errno.EMLINK),
    *(errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS),
}


def files_in(folder: Path) -> Iterator[str]:
    """Return the relative paths of all files below a folder, sorted; a link counts as a file."""
    for file in sorted(folder.rglob("*")):
        if not file.is_dir():
            yield file.relative_to(folder).as_posix()


def copy_file(source: str | os.PathLike[str], place: str | os.PathLike[str]) -> None:
    """Copy a file, without a second copy of its bytes if the file system can."""
    with open(source, "rb") as read, open(place, "xb") as written:
        if not _clone(read.fileno(), written.fileno()):
            shutil.copyfileobj(read, written, 1 << 20)


def link_file(source: Path, place: Path) -> None:
    """Hard-link a file, or copy it if the file system has no hard links."""
    try:
        os.link(source, place)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        copy_file(source, place)


def flush_tree(folder: Path) -> None:
    """Flush a folder to the disk before a rename makes it visible: a power cut may keep only the rename."""
    for file in folder.rglob("*"):
        flush(file)
    flush(folder)


def flush(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    if path.is_dir() and os.name != "posix":
        return  # folders cannot be opened there
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:  # some network file systems flush no folders
        if not path.is_dir() or error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def _clone(source: int, place: int) -> bool:
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        fcntl.ioctl(place, _FICLONE, source)
        return True
    return False
