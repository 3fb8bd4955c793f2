"""Temporary folders; what a killed process left of its own is removed by the next one that makes a folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import ClassVar

try:
    import fcntl
except ImportError:  # not on Windows, where a killed process's folders stay
    fcntl = None  # type: ignore[assignment]

_PREFIX = "onnxport-scratch-"
# A file that the folder's process keeps locked; the system lets go of the lock when the process ends, however it does.
# Process numbers would not do: containers that share the folder have numbers of their own.
_LOCK = ".in-use"
_SECONDS = 5.0  # of age below which a folder may still be without its lock


class ScratchFolder(tempfile.TemporaryDirectory[str]):
    """A private folder in the system's folder for temporary files, as `tempfile.TemporaryDirectory`."""

    _has_swept = False
    _open: ClassVar[set[str]] = set()

    def __init__(self) -> None:
        self.sweep()
        super().__init__(prefix=_PREFIX)
        ScratchFolder._open.add(self.name)
        self._lock = None if fcntl is None else _locked(Path(self.name, _LOCK), create=True)

    def cleanup(self) -> None:
        """Remove the folder, then let go of its lock."""
        super().cleanup()
        ScratchFolder._open.discard(self.name)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @classmethod
    def sweep(cls) -> None:
        """Remove the folders of killed processes; only the first call of a process looks for them."""
        if fcntl is not None and not ScratchFolder._has_swept:
            ScratchFolder._has_swept = True
            _sweep(Path(tempfile.gettempdir()))

    @classmethod
    def discard_all(cls) -> None:
        """Remove the folders of this process, which ends by force."""
        for name in list(cls._open):
            shutil.rmtree(name, ignore_errors=True)


def _sweep(place: Path) -> None:
    """Remove the folders of ended processes of this user."""
    for folder in place.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            found = folder.lstat()
            young = abs(time.time() - found.st_mtime) < _SECONDS  # of the future, if the clock was set back
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or young:
                continue
            lock = folder / _LOCK
            handle = _locked(lock, create=False) if lock.exists() else None
            if handle is not None or not lock.exists():
                shutil.rmtree(folder, ignore_errors=True)
            if handle is not None:
                os.close(handle)


def _locked(path: Path, *, create: bool) -> int | None:
    """Return the descriptor of a file that is locked by this process; None where another has it."""
    handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if create else 0), 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle
