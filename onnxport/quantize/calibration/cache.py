"""The cache of calibrations: a finished one is reused, an interrupted one continues.

An entry is found by a digest of everything that the result follows from, so an entry is never stale.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import pickle
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from onnxport.quantize.calibration.cluster import versions
from onnxport.quantize.calibration.session import external_files
from onnxport.quantize.calibration.shards import Item, Observed, Task
from onnxport.quantize.calibration_store import cache_folder

_SUFFIX = ".calibration"
_FORM = b"onnxport calibration 1\n"
_DIGEST = hashlib.sha256().digest_size
_MOST = 2**30  # bytes of all entries; the oldest go first


@dataclass
class State:
    """The progress of a calibration."""

    done: set[Item]  # the items that the observers have seen
    observed: Observed  # tensor to observers


class Entry:
    """One calibration in the cache.

    The cache never fails a calibration: write errors are ignored, and a damaged entry is removed.
    """

    def __init__(self, key: str) -> None:
        self.path = cache_folder() / f"{key}{_SUFFIX}"

    def load(self) -> State | None:
        """Load the stored state."""
        try:
            data = self.path.read_bytes()
        except OSError:
            return None
        try:
            return _decode(data)
        except _DAMAGED:
            with contextlib.suppress(OSError):
                self.path.unlink()
            return None

    def keep(self, state: State) -> None:
        """Store `state` in place of the earlier one."""
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.path.parent, suffix=".new")
            try:
                with os.fdopen(handle, "wb") as file:
                    _write(state, file)
                os.replace(name, self.path)
            except BaseException:
                os.unlink(name)
                raise
            _drop_oldest(self.path.parent)


def _write(state: State, file: BinaryIO) -> None:
    """Write what `_decode` reads; no copy of the whole is in memory."""
    digest = hashlib.sha256()
    file.write(_FORM + bytes(digest.digest_size))
    pickler = pickle.Pickler(_Hashed(file, digest), protocol=pickle.HIGHEST_PROTOCOL)
    pickler.fast = True  # it keeps nothing of what it has written
    pickler.dump((sorted(state.done), state.observed))
    file.seek(len(_FORM))
    file.write(digest.digest())


class _Hashed:
    """A file that is written to, and the digest of what is."""

    def __init__(self, file: BinaryIO, digest: hashlib._Hash) -> None:
        self._file, self._digest = file, digest

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        return self._file.write(data)


def key_of(task: Task) -> str | None:
    """Return the digest of everything the result follows from; None where a sample's reader cannot be digested."""
    digest = hashlib.sha256()
    for name, version in versions().items():
        digest.update(f"{name} {version}\n".encode())
    for file in _sources(task):
        digest.update(_content(file))
    for file in (task.path, *external_files(task.path)):
        digest.update(_content(file))
    try:
        digest.update(_digest_of_pickle([dict(part) for part in task.parts]))
        for sample in task.files.values():
            digest.update(_digest_of_pickle((sample.read, sorted(sample.optional))))
    except (pickle.PicklingError, AttributeError, TypeError, OSError):
        return None
    return digest.hexdigest()


def _sources(task: Task) -> Iterable[Path]:
    """Return the source files of the observers: they change between releases."""
    kinds = {type(observer) for part in task.parts for each in part.values() for observer in each}
    modules = {kind.__module__ for kind in kinds} | {__name__, Task.__module__}
    files = (getattr(sys.modules[name], "__file__", None) for name in sorted(modules))
    return [Path(file) for file in files if file]


class _ByContents(pickle.Pickler):
    """A pickler that writes a path as the digest of its contents."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=4)
        self.fast = True  # the same bytes whether two equal values are one object or not

    def persistent_id(self, found: Any) -> Any:
        if not isinstance(found, Path):
            return None
        files = sorted(found.iterdir()) if found.is_dir() else [found]
        return [(file.name if found.is_dir() else "", _content(file)) for file in files if file.is_file()]


def _digest_of_pickle(value: Any) -> bytes:
    written = io.BytesIO()
    _ByContents(written).dump(value)
    return written.getvalue()


def _content(path: Path) -> bytes:
    state = path.stat()
    return _digest(path, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=4)  # one file may hold hundreds of samples (samples/rows.py)
def _digest(path: Path, size: int, changed: int) -> bytes:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


class _Reader(pickle.Unpickler):
    """An unpickler that builds observers and refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _NUMPYS or (module, name) in _COLLECTIONS:
            return super().find_class(module, name)
        if module.startswith("onnxport.quantize.") and "." not in name:
            found = super().find_class(module, name)
            # A module also has what it imports, such as os.
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is nothing that a calibration holds")


_COLLECTIONS = frozenset(("collections", name) for name in ("Counter", "OrderedDict", "defaultdict", "deque"))
# What a pickled array names, in NumPy 1 and 2.
_NUMPYS = frozenset(
    (f"numpy{module}", name)
    for module, name in (
        ("", "ndarray"),
        ("", "dtype"),
        (".core.multiarray", "_reconstruct"),
        ("._core.multiarray", "_reconstruct"),
        (".core.multiarray", "scalar"),
        ("._core.multiarray", "scalar"),
        (".core.numeric", "_frombuffer"),
        ("._core.numeric", "_frombuffer"),
    )
)
_DAMAGED = (pickle.UnpicklingError, ValueError, EOFError, AttributeError, ImportError, LookupError, TypeError)


def _decode(data: bytes) -> State:
    """Read what `Entry.keep` wrote; raise one of _DAMAGED otherwise."""
    head, payload = data[: len(_FORM) + _DIGEST], data[len(_FORM) + _DIGEST :]
    if head != _FORM + hashlib.sha256(payload).digest():
        raise ValueError("damaged")
    done, observed = _Reader(io.BytesIO(payload)).load()
    return State(set(done), observed)


def _drop_oldest(place: Path) -> None:
    """Remove the oldest entries until the rest take at most _MOST."""
    entries = sorted(place.glob(f"*{_SUFFIX}"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    taken = 0
    for entry in entries:
        taken += entry.stat().st_size
        if taken > _MOST:
            entry.unlink()
