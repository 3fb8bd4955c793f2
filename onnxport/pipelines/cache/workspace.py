"""The private folder of a run in a shared cache, removed when the run ends.

A killed run leaves its folder behind. A later run removes it: on the same machine when no process holds its lock, on
another machine when it was not touched for a week.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import time
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows, where age decides
    fcntl = None  # type: ignore[assignment]

_LOCK = ".lock"
_BEGINNING = ".begun"
_OLD = 7 * 86400  # seconds; no stage takes so long


class Private:
    """A folder below `parent`, created on first use."""

    def __init__(self, parent: Path) -> None:
        self.parent = parent
        self._name = f"{machine()}-{os.urandom(6).hex()}"
        self._lock = -1

    @property
    def folder(self) -> Path:
        """Its path, even before it exists."""
        return self.parent / self._name

    def make(self) -> Path:
        """Create the folder if necessary and return it; OSError if it cannot be created."""
        if self._lock >= 0:
            os.utime(self.folder)  # tells other machines that it is in use
            return self.folder
        begun = self.folder.with_name(self._name + _BEGINNING)
        begun.mkdir(parents=True)
        try:
            self._lock = os.open(begun / _LOCK, os.O_CREAT | os.O_RDWR, 0o644)
            _lock(self._lock)
            begun.rename(self.folder)  # with the lock in it, so it never looks abandoned
        except OSError:
            self.close()
            shutil.rmtree(begun, ignore_errors=True)
            raise
        return self.folder

    def new(self) -> Path:
        """Create an empty folder in it; raises as `make`."""
        room = self.make() / os.urandom(8).hex()
        room.mkdir()
        return room

    def close(self) -> None:
        """Remove the folder with its content."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def sweep(parent: Path) -> None:
    """Remove the folders of dead runs below `parent`."""
    with contextlib.suppress(OSError):
        for folder in parent.iterdir():
            with contextlib.suppress(OSError):
                if _is_abandoned(folder):
                    shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    """Return whether no run uses the folder: by its lock where that tells, whatever the clock says, or by age."""
    has_lock = folder.name.rpartition("-")[0] == machine() and not folder.name.endswith(_BEGINNING)
    if has_lock and fcntl is not None:
        with contextlib.suppress(FileNotFoundError):  # half removed
            lock = os.open(folder / _LOCK, os.O_RDWR)
            try:
                return _lock(lock)
            finally:
                os.close(lock)
    return time.time() - folder.stat().st_mtime > _OLD


def machine() -> str:
    """Identify this machine since its boot: containers on it share its locks, but not their host names."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip().replace("-", "")
    return re.sub(r"[^A-Za-z0-9.]", "_", socket.gethostname())


def _lock(lock: int) -> bool:
    """Take the lock; False if another process has it, or if the system has no locks."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
