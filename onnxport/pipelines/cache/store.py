"""What a run does with the cache: looks for entries, keeps what it made, and leaves the folder within its size."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from onnxport.core.errors import MachineError, OnnxportError, UsageError
from onnxport.core.memory import bytes_of
from onnxport.formats.artifact import write_failure
from onnxport.pipelines.cache import entries
from onnxport.pipelines.cache.entries import ENTRY, Damaged, Entry, Note
from onnxport.pipelines.cache.files import files_in, flush_folder, flush_tree, link_file
from onnxport.pipelines.cache.workspace import Private, sweep
from onnxport.pipelines.graph.user_code import find_change
from onnxport.reports.run_report import RunReport

_HOME = ".onnxport"
_PRIVATE = "new"
_TRIES = 4  # runs that clear the cache at the moment in which this one keeps something
LIMIT = "10GB"

# What says that nothing can be written, while all can be read.
_NO_ROOM = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT}


def home_of(pipeline: Path) -> Path:
    """Where all that is kept of a pipeline lies: `$ONNXPORT_CACHE`, else .onnxport beside its file."""
    chosen = os.environ.get("ONNXPORT_CACHE")
    return Path(chosen) if chosen else pipeline.parent / _HOME


def folder_beside(pipeline: Path) -> Path:
    """Where products are kept."""
    return home_of(pipeline) / "stages"


def timings_beside(pipeline: Path) -> Path:
    """Where figures of latency are kept (latency.py)."""
    return home_of(pipeline) / "timings"


def size_limit() -> int:
    """The bytes that a cache may take: `$ONNXPORT_CACHE_SIZE`, as 500MB or 20GB.

    Raises:
        UsageError: that says something else.
    """
    given = os.environ.get("ONNXPORT_CACHE_SIZE") or LIMIT
    try:
        return bytes_of(given)
    except ValueError:
        raise UsageError(f"$ONNXPORT_CACHE_SIZE: {given!r} is no size", fix="write 500MB or 20GB") from None


@dataclass(frozen=True)
class EntrySummary:
    """An entry as a list shows it.

    Attributes:
        note: what it says of itself; None where that is damaged.
        size: bytes on disk.
        used: when it was last made or found, in seconds of the epoch.
    """

    key: str
    note: Note | None
    size: int
    used: float


class Cache:
    """The entries below `folder`, which need not exist yet.

    Use as a context manager: leaving removes what this run was making and did not finish, and the entries beyond the
    size limit that were used least recently; never one that this run used.

    Args:
        keeps: False for entries that only this run sees and that go when it ends.
    """

    def __init__(self, folder: Path, *, keeps: bool = True) -> None:
        self.folder = folder
        self._keeps = keeps
        self._private = Private(folder / _PRIVATE)
        self._found: dict[str, Entry] = {}
        self._has_grown = False
        self._limit = size_limit()

    @classmethod
    def apart(cls) -> Self:
        """One of this run's own, in the folder for temporary files, with nothing in it."""
        return cls(_temporary_folder(), keeps=False)

    def __enter__(self) -> Self:
        sweep(self._private.parent)
        return self

    def __exit__(self, *_: object) -> None:
        if self._has_grown and self._keeps:
            self.prune(self._limit)
        self._private.close()
        if not self._keeps:
            with contextlib.suppress(OSError):  # others work there
                self._private.parent.rmdir()
                self.folder.rmdir()

    def get(self, key: str) -> Entry | None:
        """The entry of `key`, all of it read; None where there is none, or one that is dropped: it is damaged, or the
        user's code that it was made with is another now."""
        if key not in self._found:
            entry = self._read(key)
            if entry is None:
                return None
            self._found[key] = entry
        return self._found[key]

    def room(self, node: str) -> Path:
        """An empty folder in which a product may be made that `put` is to take.

        Raises:
            MachineError: the cache cannot be written to.
        """
        with self._writing():
            room = self._private.new()
            self._mark()
        return room

    def put(
        self, key: str, room: Path, report: RunReport, inputs: Mapping[str, Any], node: str = ""
    ) -> Entry:
        """Keeps the product in `room` under `key`; where another run was faster, its entry stands.

        Raises:
            MachineError: the cache cannot be written to.
        """
        with self._writing():
            note = entries.write(room, key, node, report, inputs)
            flush_tree(room)
            self._has_grown = True
            entry = self._link_privately(room, key, note)
            for _ in range(_TRIES):
                if self._is_placed(room, key):
                    self._found[key] = entry
                    return entry
                if (other := self.get(key)) is not None:
                    shutil.rmtree(room, ignore_errors=True)
                    return other
        raise MachineError(f"the cache {self.folder} is being cleared by others all the time", fix=_WAY_OUT)

    def kept(self) -> Iterator[EntrySummary]:
        """All entries, by what they say of themselves: their products are not read."""
        for folder in sorted(self._entries.glob("[0-9a-f][0-9a-f]/*")):
            with contextlib.suppress(OSError):  # another run dropped it
                note = None
                with contextlib.suppress(Damaged, FileNotFoundError, NotADirectoryError):
                    note = entries.read(folder, folder.name)
                size = sum((folder / name).lstat().st_size for name in files_in(folder))
                yield EntrySummary(folder.name, note, size, folder.stat().st_mtime)

    def look(self, key: str) -> tuple[Note | None, str]:
        """What is kept under `key`, all of it read and nothing touched; or why it would not do, empty where there is
        nothing."""
        place = self._place(key)
        try:
            note = entries.read(place, key)
            entries.check(place, note)
        except (FileNotFoundError, NotADirectoryError):
            return None, ""
        except (OSError, Damaged):
            return None, "what the cache has is damaged"
        why = find_change(note.report.consulted)
        return (None, why) if why else (note, "")

    def check_writable(self) -> None:
        """Raises MachineError where nothing can be kept or dropped."""
        with self._writing():
            self._private.make()

    def clear(self) -> list[EntrySummary]:
        """Drops all entries, and the folders that are empty then; gives what it dropped."""
        dropped = self.prune(-1)
        self._private.close()
        for folder in (*self._entries.glob("[0-9a-f][0-9a-f]"), self._private.parent, self.folder):
            with contextlib.suppress(OSError):  # another run works there
                folder.rmdir()
        return dropped

    def prune(self, limit: int) -> list[EntrySummary]:
        """Drops what is damaged as far as entry.json tells, and the least recently used entries until the rest take no
        more than `limit` bytes; gives what it dropped. One that cannot be dropped stays."""
        dropped = []
        taken = 0
        for each in sorted(self.kept(), key=lambda each: each.used, reverse=True):
            taken += each.size
            if each.note is None or (taken > limit and each.key not in self._found):
                taken -= each.size
                if self._drop(each.key):
                    dropped.append(each)
        return dropped

    @property
    def _entries(self) -> Path:
        return self.folder if self._keeps else self._private.folder / "kept"

    def _place(self, key: str) -> Path:
        return self._entries / key[:2] / key

    def _read(self, key: str) -> Entry | None:
        place = self._place(key)
        try:
            note = entries.read(place, key)
            if find_change(note.report.consulted):
                raise Damaged(key)
            entry = self._link_privately(place, key, note)
            entries.check(entry.artifact.path.parent, note)
        except (FileNotFoundError, NotADirectoryError):
            if place.is_dir() and not (place / ENTRY).is_file():
                self._drop(key)
            return None
        except (OSError, Damaged):
            self._drop(key)
            return None
        with contextlib.suppress(OSError):
            os.utime(place)  # it is in use
        return entry

    def _link_privately(self, folder: Path, key: str, note: Note) -> Entry:
        """The entry in `folder` under names that are this run's alone, so that it can be read whatever others drop
        meanwhile; as it is where there is nowhere to put them."""
        try:
            own = self._private.new()
            for name in files_in(folder):
                if name != ENTRY:
                    (own / name).parent.mkdir(parents=True, exist_ok=True)
                    link_file(folder / name, own / name)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            own = self._place(key)
        return note.entry(own, self._place(key))

    def _is_placed(self, room: Path, key: str) -> bool:
        """Whether `room` has become the entry of `key`; False where another stands there."""
        place = self._place(key)
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            room.rename(place)
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOENT) and room.is_dir():
                return False
            raise
        flush_folder(place.parent)
        return True

    def _drop(self, key: str) -> bool:
        """Takes an entry away in one step, so that nobody finds half of it."""
        with contextlib.suppress(OSError):
            gone = self._private.new()
            self._place(key).rename(gone / key)
            shutil.rmtree(gone, ignore_errors=True)
            return True
        return False

    def _mark(self) -> None:
        """Keeps the folder beside a pipeline out of its repository."""
        home = self.folder.parent
        if self._keeps and home.name == _HOME:
            with contextlib.suppress(FileExistsError), (home / ".gitignore").open("x") as file:
                file.write("*\n")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OnnxportError:
            raise
        except OSError as error:
            refused = write_failure(self.folder, error)
            refused.what = f"the cache {self.folder} cannot be written"
            refused.fix = _WAY_OUT
            raise refused from error


_WAY_OUT = "give $ONNXPORT_CACHE a folder with room that you may write to, or run with --no-cache"


def _temporary_folder() -> Path:
    """A folder that nobody else may write to; the same from run to run, so that what killed ones left is found."""
    place = Path(tempfile.gettempdir()) / f"onnxport-{os.getuid() if hasattr(os, 'getuid') else 0}"
    with contextlib.suppress(OSError):
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
        if os.name != "posix" or (found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) == 0o700):
            return place
    return Path(tempfile.mkdtemp(prefix="onnxport-"))
