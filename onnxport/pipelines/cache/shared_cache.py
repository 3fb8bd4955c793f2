"""A cache that machines share, at a URL: an archive for each entry, `ab/KEY.zip`.

It only saves time. What it gives is checked as an entry of this machine's cache; a fault of the server, a refusal or
15 seconds of silence end its use for the rest of the run, with a note. Products are written while others are made.
"""

from __future__ import annotations

import os
import queue
import threading
import time
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from onnxport.core.archives import DAMAGED_ARCHIVE
from onnxport.core.errors import OnnxportError
from onnxport.core.scratch import ScratchFolder
from onnxport.formats.remote import RemoteFolder
from onnxport.pipelines.cache import entries
from onnxport.pipelines.cache.entries import Damaged
from onnxport.pipelines.cache.files import files_in

T = TypeVar("T")

SILENCE = 15.0  # seconds without a byte
_LOOKS = 0.05  # seconds between two looks at a transfer
_LAST = 60.0  # seconds at the end of a run for what is still to be written
_CHUNK = 1 << 20

# What reading a damaged archive raises.
DAMAGED = (Damaged, *DAMAGED_ARCHIVE)


class SharedCache:
    """The entries at a URL.

    Args:
        writes: whether to write products of this run there.

    Attributes:
        notes: sentences for the user about what did not work.

    Raises:
        UsageError: the URL names no folder, or has an unknown scheme.
        MissingDependencyError: the package of its scheme is missing.
    """

    def __init__(self, url: str, *, writes: bool = True) -> None:
        self._from, self._to = _Connection(url), _Connection(url)
        self._folder = self._from.folder
        self._folder.check()
        self._writes = writes
        self._reads = True
        self._scratch = ScratchFolder()
        self._waiting: queue.SimpleQueue[tuple[str, Path] | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self.notes: list[str] = []

    def get(self, key: str, room: Path) -> bool:
        """Unpack the entry of `key` into the empty folder `room`; False if there is no intact one."""
        if not self._reads:
            return False
        archive = Path(self._scratch.name) / f"{key}.zip"
        try:
            if not self._from.transfer(lambda folder: folder.get(_name(key), archive)):
                return False
            _unpack(archive, room)
            entries.check(room, entries.read(room, key))
        except DAMAGED:
            self.notes.append(f"{self._folder} has a damaged entry {key[:16]}, which was made again")
            return False
        except OnnxportError as error:
            self._reads = self._writes = False
            self.notes.append(f"the remote cache is not used any more: {error}")
            return False
        finally:
            archive.unlink(missing_ok=True)
        return True

    def put(self, key: str, entry: Path) -> None:
        """Write an entry in the background."""
        if not self._writes:
            return
        archive = Path(self._scratch.name) / f"{os.urandom(8).hex()}.zip"
        try:
            _pack(entry, archive)
        except OSError:  # no room for a copy
            archive.unlink(missing_ok=True)
            return
        if self._writer is None:
            self._writer = threading.Thread(target=self._write_all, daemon=True)
            self._writer.start()
        self._waiting.put((key, archive))

    def close(self) -> None:
        """Wait for what is still to be written, at most a minute."""
        if self._writer is not None:
            self._waiting.put(None)
            self._writer.join(_LAST)
            if self._writer.is_alive():
                self._writes = False
                self.notes.append(f"{self._folder} lacks products of this run: writing them took too long")
            self._writer = None
        self._scratch.cleanup()

    def _write_all(self) -> None:
        while (item := self._waiting.get()) is not None:
            key, archive = item
            if self._writes:
                try:
                    self._to.transfer(partial(RemoteFolder.put, file=archive, name=_name(key)))
                except OnnxportError as error:
                    self._writes = False
                    self.notes.append(f"the remote cache gets no products any more: {error}")
            archive.unlink(missing_ok=True)


class _Connection:
    """One direction of transfers, one after the other."""

    def __init__(self, url: str) -> None:
        self._moved = time.monotonic()
        self.folder = RemoteFolder(url, self._note_bytes)

    def transfer(self, job: Callable[[RemoteFolder], T]) -> T:
        """Return the result of a transfer; raise _Silent where no byte moves for a while."""
        found: list[T] = []
        raised: list[Exception] = []

        def run() -> None:
            try:
                found.append(job(self.folder))
            except Exception as error:
                raised.append(error)

        self._note_bytes()
        thread = threading.Thread(target=run, daemon=True)  # a library may wait for ever
        thread.start()
        while thread.is_alive():
            thread.join(_LOOKS)
            if time.monotonic() - self._moved > SILENCE:
                raise _Silent(f"{self.folder} was silent for {SILENCE:g} s")
        if raised:
            raise raised[0]
        return found[0]

    def _note_bytes(self) -> None:
        self._moved = time.monotonic()


class _Silent(OnnxportError):
    """A server that does not answer in time."""


def _name(key: str) -> str:
    return f"{key[:2]}/{key}.zip"


def _pack(entry: Path, archive: Path) -> None:
    """Write an entry's files, uncompressed: reading takes no more room than the archive has bytes."""
    with zipfile.ZipFile(archive, "x", zipfile.ZIP_STORED) as written:
        for name in files_in(entry):
            written.write(entry / name, name)


def _unpack(archive: Path, room: Path) -> None:
    """Read an archive of `_pack`; Damaged if it is none."""
    with zipfile.ZipFile(archive) as read:
        if sum(info.file_size for info in read.infolist()) > archive.stat().st_size:
            raise Damaged("sizes")
        for info in read.infolist():
            place = room / info.filename
            plain = ".." not in place.parts and place.is_relative_to(room) and info.filename.isprintable()
            if (
                info.compress_type != zipfile.ZIP_STORED
                or info.file_size > archive.stat().st_size
                or not plain
            ):
                raise Damaged(info.filename)
            place.parent.mkdir(parents=True, exist_ok=True)
            with read.open(info) as source, place.open("xb") as target:
                while part := source.read(_CHUNK):
                    target.write(part)
