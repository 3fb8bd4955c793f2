"""A folder put in another's place in one step of the file system, so that no moment is without either.

POSIX's rename replaces a file but no folder that holds anything. Linux and macOS have a call that exchanges two names;
where it is missing, or the file system has none of it, the caller has to move the old folder away first.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2  # linux/fs.h
_RENAME_SWAP = 2  # macOS, sys/stdio.h
# How a system says that it cannot, and not that these two cannot be exchanged.
_UNKNOWN = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM}


def exchange(one: Path, other: Path) -> bool:
    """Exchanges what two existing names stand for, on one disk; False where the system has no such step.

    Raises:
        OSError: it has, and refuses: FileNotFoundError where one of the names does not exist.
    """
    if os.name != "posix":
        return False
    library = ctypes.CDLL(None, use_errno=True)
    first, second = os.fsencode(one), os.fsencode(other)
    if hasattr(library, "renameat2"):
        failed = library.renameat2(_AT_FDCWD, first, _AT_FDCWD, second, _RENAME_EXCHANGE)
    elif sys.platform == "darwin" and hasattr(library, "renamex_np"):
        failed = library.renamex_np(first, second, _RENAME_SWAP)
    else:
        return False
    if not failed:
        return True
    code = ctypes.get_errno()
    if code in _UNKNOWN:
        return False
    raise OSError(code, os.strerror(code), str(other))
