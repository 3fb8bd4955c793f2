"""Exchange two folders atomically.

POSIX's rename replaces a file, but no folder that is not empty. Linux and macOS have a call that exchanges two names;
where the system or the file system lacks it, the caller must move the old folder away first.
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
# Errors that mean "not supported", not "these two cannot be exchanged".
_UNSUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM}


def exchange(one: Path, other: Path) -> bool:
    """Exchange two existing names on one disk; return False where the system cannot. OSError if it refuses."""
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
    if code in _UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), str(other))
