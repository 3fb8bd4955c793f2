"""Files as the cache takes them: listed, shared without a copy, written through to the disk."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

_FICLONE = 0x40049409  # linux/fs.h
# What systems answer that have no hard links here, or none to another user's file.
_NO_LINK = {
    errno.EPERM,
    errno.EACCES,
    errno.EXDEV,
    errno.EMLINK,
    errno.ENOTSUP,
    errno.EOPNOTSUPP,
    errno.ENOSYS,
}


def files_in(folder: Path) -> Iterator[str]:
    """The files below a folder by their way inside, sorted; a link counts as a file, which it is read as."""
    for file in sorted(folder.rglob("*")):
        if not file.is_dir():
            yield file.relative_to(folder).as_posix()


def copy_file(source: str | os.PathLike[str], place: str | os.PathLike[str]) -> None:
    """Copies a file; on a file system that can, without a second copy of its bytes."""
    with open(source, "rb") as read, open(place, "xb") as written:
        if not _clone(read.fileno(), written.fileno()):
            shutil.copyfileobj(read, written, 1 << 20)


def link_file(source: Path, place: Path) -> None:
    """Gives a file a second name, which outlives the first; a copy where the file system has no such."""
    try:
        os.link(source, place)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        copy_file(source, place)


def flush_tree(folder: Path) -> None:
    """Has all of a folder on the disk before a rename makes it visible: a power cut may keep the rename alone."""
    for file in folder.rglob("*"):
        _flush(file)
    _flush(folder)


def flush_folder(folder: Path) -> None:
    """Has the names in a folder on the disk."""
    _flush(folder)


def _flush(path: Path) -> None:
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
