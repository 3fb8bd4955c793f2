"""Digests of large files that earlier runs read, by what the file system says of a file.

A file counts as unchanged while its device, inode, size and time of change in nanoseconds are the same, as for make
and git. A digest is kept only of a file that had settled when it was read: one written an instant before may be written
again within the same tick of the clock (git's "racy" entries, Documentation/technical/racy-git).

The record lies in the user's cache folder and not beside the pipeline, where a repository could bring one.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from onnxport.core.reads import has_settled
from onnxport.core.user_cache import user_cache

Stamp = tuple[int, ...]

_LARGE = 4 * 2**20  # bytes: smaller files are read faster than asked for
_MOST = 4096  # digests that are kept
_FORM = 1


def stamp_of(file: Path) -> Stamp:
    """Return what the file system says of a file: device, inode, bytes, and the time of change in nanoseconds."""
    found = file.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class KnownDigests:
    """The digests of earlier runs, and those that this one adds.

    Args:
        path: of the record; it may be missing, damaged or in a folder that cannot be written: then files are read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digests = _read(path)
        self._added: dict[str, str] = {}

    @classmethod
    def of_user(cls) -> KnownDigests:
        """Return the digests that the user's earlier runs left."""
        return cls(user_cache() / "digests.json")

    def get(self, stamp: Stamp) -> bytes | None:
        """Return the SHA-256 of the file with this stamp, if a run has read it."""
        known = self._digests.get(_name(stamp))
        return None if known is None else bytes.fromhex(known)

    def add(self, stamp: Stamp, digest: bytes, begun: int) -> None:
        """Keep a large file's SHA-256 for later runs.

        Args:
            begun: when reading it began, in nanoseconds since the epoch.
        """
        *_, size, changed = stamp
        if size >= _LARGE and has_settled(changed, begun):
            self._added[_name(stamp)] = digest.hex()

    def save(self) -> None:
        """Write the record with what was added; leave it where it cannot be written."""
        if not self._added:
            return
        kept = {**_read(self._path), **self._added}  # others may have written it meanwhile
        newest = dict(list(kept.items())[-_MOST:])
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                beside.write_text(json.dumps({"form": _FORM, "digests": newest}), encoding="utf-8")
                beside.replace(self._path)
            finally:
                beside.unlink(missing_ok=True)


def _name(stamp: Stamp) -> str:
    return "/".join(map(str, stamp))


def _read(path: Path) -> dict[str, str]:
    """Return the record's digests; none where it is missing or damaged in any place."""
    try:
        said = json.loads(path.read_bytes())
        digests: dict[str, str] = said["digests"]
        is_right = said["form"] == _FORM and all(
            isinstance(each, str) and len(bytes.fromhex(each)) == 32 for each in digests.values()
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}
    return digests if is_right else {}
