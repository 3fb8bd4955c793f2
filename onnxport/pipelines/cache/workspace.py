"""Where a run works in a shared cache undisturbed: a folder of its own, which goes when the run does.

A run that was killed leaves its folder behind. Whoever comes next removes it: on the same machine as soon as nobody
holds the lock in it, which the system lets go of with the process; a folder of another machine when nobody has touched
it for a week.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import time
from pathlib import Path

_LOCK = ".lock"
_BEGINNING = ".begun"
_OLD = 7 * 86400  # seconds; no run works for so long on one stage


class Private:
    """A folder below `parent`, made when it is first asked for."""

    def __init__(self, parent: Path) -> None:
        self.parent = parent
        self._name = f"{machine()}-{os.urandom(6).hex()}"
        self._lock = -1

    @property
    def folder(self) -> Path:
        """Where it is, or will be."""
        return self.parent / self._name

    def make(self) -> Path:
        """It, which exists.

        Raises:
            OSError: it cannot be made.
        """
        if self._lock >= 0:
            os.utime(self.folder)  # it is in use, as other machines see
            return self.folder
        begun = self.folder.with_name(self._name + _BEGINNING)
        begun.mkdir(parents=True)
        try:
            self._lock = os.open(begun / _LOCK, os.O_CREAT | os.O_RDWR, 0o644)
            _lock(self._lock)
            begun.rename(self.folder)  # with the lock in it: there is no moment in which it looks forsaken
        except OSError:
            self.close()
            shutil.rmtree(begun, ignore_errors=True)
            raise
        return self.folder

    def new(self) -> Path:
        """An empty folder in it. OSError as above."""
        room = self.make() / os.urandom(8).hex()
        room.mkdir()
        return room

    def close(self) -> None:
        """Removes it with all that is in it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def sweep(parent: Path) -> None:
    """Removes the folders below `parent` whose runs are gone."""
    with contextlib.suppress(OSError):
        for folder in parent.iterdir():
            with contextlib.suppress(OSError):
                if _is_abandoned(folder):
                    shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    if time.time() - folder.stat().st_mtime > _OLD:
        return True
    if folder.name.endswith(_BEGINNING) or folder.name.rpartition("-")[0] != machine():
        return False
    lock = os.open(folder / _LOCK, os.O_RDWR)
    try:
        return _lock(lock)
    finally:
        os.close(lock)


def machine() -> str:
    """This machine since it was started: containers on it share its locks, and may each have a host name."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip().replace("-", "")
    return re.sub(r"[^A-Za-z0-9.]", "_", socket.gethostname())


def _lock(lock: int) -> bool:
    """Takes the lock; False where another process has it, or where there are no locks."""
    try:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True
