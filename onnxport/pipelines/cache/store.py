"""The operations of a run on the cache: find entries, store products, stay within the size limit."""

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

from onnxport.core.errors import InputError, MachineError, OnnxportError, UsageError
from onnxport.core.memory import bytes_of
from onnxport.formats.artifact import write_failure
from onnxport.pipelines.cache import entries
from onnxport.pipelines.cache.entries import ENTRY, Damaged, Entry, Note
from onnxport.pipelines.cache.files import files_in, flush, flush_tree, link_file
from onnxport.pipelines.cache.shared_cache import SharedCache
from onnxport.pipelines.cache.workspace import Private, sweep
from onnxport.pipelines.graph.digests import find_change
from onnxport.reports.run_report import RunReport

_HOME = ".onnxport"
_PRIVATE = "new"
_TRIES = 4  # attempts to store an entry while other runs clear the cache
LIMIT = "10GB"

# Errors of a folder that can be read but not written.
_NO_ROOM = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT}


def home_of(pipeline: Path) -> Path:
    """Return the cache folder of a pipeline: `$ONNXPORT_CACHE`, else .onnxport beside its file."""
    chosen = os.environ.get("ONNXPORT_CACHE")
    return Path(chosen) if chosen else pipeline.parent / _HOME


def folder_beside(pipeline: Path) -> Path:
    """Return the folder of products; InputError if it may lie elsewhere, see `_refuse_links`."""
    return _refuse_links(home_of(pipeline)) / "stages"


def timings_beside(pipeline: Path) -> Path:
    """Return the folder of latency figures (execution/latency.py); raises as `folder_beside`."""
    return _refuse_links(home_of(pipeline)) / "timings"


def _refuse_links(home: Path) -> Path:
    """Refuse links in a cache beside a pipeline: a repository can bring some, and what they lead to would be cleared.

    Raises:
        InputError: there is one.
    """
    if home.name != _HOME or os.environ.get("ONNXPORT_CACHE"):
        return home
    inside = (home / "stages").iterdir() if (home / "stages").is_dir() else ()
    for place in (home, home / "stages", home / "timings", *inside):
        if place.is_symlink():
            raise InputError(
                f"{place} is a link, and a cache must not lie elsewhere",
                fix="remove it; for a cache in another place, set $ONNXPORT_CACHE",
            )
    return home


def size_limit() -> int:
    """Return the size limit of a cache in bytes, from `$ONNXPORT_CACHE_SIZE`; UsageError if that is no size."""
    given = os.environ.get("ONNXPORT_CACHE_SIZE") or LIMIT
    try:
        return bytes_of(given)
    except ValueError:
        raise UsageError(
            f"$ONNXPORT_CACHE_SIZE: {given!r} is not a size", fix="write 500MB or 20GB"
        ) from None


@dataclass(frozen=True)
class EntrySummary:
    """An entry in a list: its entry.json (None if damaged), bytes on disk, and the Unix time of its last use."""

    key: str
    note: Note | None
    size: int
    used: float


class Cache:
    """The entries below `folder`, which need not exist yet; with `keeps=False` a private cache that the run removes.

    Leaving the context removes unfinished products of this run, and the least recently used entries beyond the size
    limit, but none that this run used.

    Args:
        shared: the cache of other machines: entries come from there where this one has none, and go there.
    """

    def __init__(self, folder: Path, *, keeps: bool = True, shared: SharedCache | None = None) -> None:
        self.folder = folder
        self._shared = shared
        self._keeps = keeps
        self._private = Private(folder / _PRIVATE)
        self._found: dict[str, Entry] = {}
        self._has_grown = False
        self._limit = size_limit()

    @classmethod
    def apart(cls) -> Self:
        """Return an empty private cache in the folder for temporary files."""
        return cls(_temporary_folder(), keeps=False)

    def __enter__(self) -> Self:
        sweep(self._private.parent)
        return self

    def __exit__(self, *_: object) -> None:
        if self._shared is not None:
            self._shared.close()
        if self._has_grown and self._keeps:
            self.prune(self._limit)
        self._private.close()
        if not self._keeps:
            with contextlib.suppress(OSError):  # others work there
                self._private.parent.rmdir()
                self.folder.rmdir()

    def get(self, key: str) -> Entry | None:
        """Return the checked entry of `key` or None; drop it if it is damaged or was made with other user code."""
        if key not in self._found:
            entry = self._read(key) or self._fetch(key)
            if entry is None:
                return None
            self._found[key] = entry
        return self._found[key]

    def room(self, node: str) -> Path:
        """Create an empty folder for a product that `put` will store; MachineError if the cache cannot be written."""
        with self._writing():
            room = self._private.new()
            self._mark()
        return room

    def put(
        self, key: str, room: Path, report: RunReport, inputs: Mapping[str, Any], node: str = ""
    ) -> Entry:
        """Store the product in `room` under `key`; if another run was faster, return its entry. Raises as `room`."""
        with self._writing():
            note = entries.write(room, key, node, report, inputs)
            flush_tree(room)
            self._has_grown = True
            entry = self._link_privately(room, key, note)
            for _ in range(_TRIES):
                if self._is_placed(room, key):
                    self._found[key] = entry
                    if self._shared is not None:
                        self._shared.put(key, self._place(key))
                    return entry
                if (other := self.get(key)) is not None:
                    shutil.rmtree(room, ignore_errors=True)
                    return other
        raise MachineError(
            f"other runs keep clearing the cache {self.folder}",
            fix="wait for them, or set another $ONNXPORT_CACHE",
        )

    def kept(self) -> Iterator[EntrySummary]:
        """Return all entries by their entry.json; the products are not read."""
        for folder in sorted(self._entries.glob("[0-9a-f][0-9a-f]/*")):
            with contextlib.suppress(OSError):  # another run dropped it
                note = None
                with contextlib.suppress(Damaged, FileNotFoundError, NotADirectoryError):
                    note = entries.read(folder, folder.name)
                size = sum((folder / name).lstat().st_size for name in files_in(folder))
                yield EntrySummary(folder.name, note, size, folder.stat().st_mtime)

    def look(self, key: str) -> tuple[Note | None, str]:
        """Return the checked note of `key` and change nothing; or None and the reason, if there is one."""
        place = self._place(key)
        try:
            note = entries.read(place, key)
            entries.check(place, note)
        except (FileNotFoundError, NotADirectoryError):
            return None, ""
        except (OSError, Damaged):
            return None, "the cache entry is damaged"
        why = find_change(note.report.consulted)
        return (None, why) if why else (note, "")

    def check_writable(self) -> None:
        """Refuse a cache that cannot be written (MachineError)."""
        with self._writing():
            self._private.make()

    def clear(self) -> list[EntrySummary]:
        """Drop all entries and empty folders; return the dropped entries."""
        dropped = self.prune(-1)
        self._private.close()
        for folder in (*self._entries.glob("[0-9a-f][0-9a-f]"), self._private.parent, self.folder):
            with contextlib.suppress(OSError):  # another run works there
                folder.rmdir()
        return dropped

    def prune(self, limit: int) -> list[EntrySummary]:
        """Drop and return damaged entries, then the least recently used ones beyond `limit` bytes."""
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
            os.utime(place)  # marks it as used
        return entry

    def _fetch(self, key: str) -> Entry | None:
        """Bring an entry of the shared cache into this one and return it, checked as any other."""
        if self._shared is None:
            return None
        with contextlib.suppress(OSError):  # no room here: the product is made again, which says so
            room = self._private.new()
            if self._shared.get(key, room):
                flush_tree(room)
                self._has_grown = True
                self._is_placed(room, key)
                return self._read(key)
        return None

    def _link_privately(self, folder: Path, key: str, note: Note) -> Entry:
        """Return the entry with private links to its files; the entry itself if nothing can be written."""
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
        """Make `room` the entry of `key`; False if another run was faster."""
        place = self._place(key)
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            room.rename(place)
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOENT) and room.is_dir():
                return False
            raise
        flush(place.parent)
        return True

    def _drop(self, key: str) -> bool:
        """Remove an entry atomically."""
        with contextlib.suppress(OSError):
            gone = self._private.new()
            self._place(key).rename(gone / key)
            shutil.rmtree(gone, ignore_errors=True)
            return True
        return False

    def _mark(self) -> None:
        """Exclude the folder beside a pipeline from its repository."""
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


_WAY_OUT = "set $ONNXPORT_CACHE to a writable folder with free space, or run with --no-cache"


def _temporary_folder() -> Path:
    """Return a folder that only this user can write; the same in every run, so leftovers of killed runs are found."""
    place = Path(tempfile.gettempdir()) / f"onnxport-{os.getuid() if hasattr(os, 'getuid') else 0}"
    with contextlib.suppress(OSError):
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
        if os.name != "posix" or (found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) == 0o700):
            return place
    return Path(tempfile.mkdtemp(prefix="onnxport-"))
