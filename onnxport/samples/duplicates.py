"""Find equal samples by the content of their files, read only as far as needed."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path

from onnxport.samples.readers import SampleFile

_FIRST = 2**16  # bytes; most files differ within them


def duplicates(files: Sequence[SampleFile]) -> tuple[tuple[int, ...], ...]:
    """Return the indices of equal samples, in groups of two and more.

    Files are equal if their bytes are; data sets and parts of a file (rows, windows, frames), if their arrays are. A
    batch of several images counts as its first image.
    """
    groups: list[tuple[int, ...]] = [tuple(range(len(files)))]
    for key in (_size, _beginning, _content):
        groups = [part for group in groups for part in _split(group, files, key)]
    return tuple(groups)


def _split(
    group: Sequence[int], files: Sequence[SampleFile], key: Callable[[SampleFile], Hashable]
) -> Iterable[tuple[int, ...]]:
    parts: dict[Hashable, list[int]] = defaultdict(list)
    for place in group:
        parts[key(files[place])].append(place)
    return [tuple(part) for part in parts.values() if len(part) > 1]


def _size(file: SampleFile) -> Hashable:
    return None if _is_computed(file) else file.path.stat().st_size


def _beginning(file: SampleFile) -> Hashable:
    if _is_computed(file):
        return None
    with file.path.open("rb") as stream:
        return stream.read(_FIRST)


def _content(file: SampleFile) -> Hashable:
    return _arrays_digest(file) if _is_computed(file) else _file_digest(file.path)


def _is_computed(file: SampleFile) -> bool:
    return file.is_part or file.path.is_dir()


def _file_digest(path: Path) -> bytes:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


def _arrays_digest(file: SampleFile) -> bytes:
    digest = hashlib.sha256()
    for name, array in file.load().feeds.items():
        digest.update(repr((name, array.dtype.str, array.shape)).encode())
        digest.update(array.tobytes())
    return digest.digest()
