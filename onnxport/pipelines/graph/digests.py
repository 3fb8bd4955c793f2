"""Digests of the files and folders that a pipeline names, and changes of user code; a run reads each file once."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from onnxport.core import file_digests, reads
from onnxport.core.missing_paths import unreadable_path
from onnxport.core.user_modules import find_module, import_from
from onnxport.exporters.sources import Source
from onnxport.formats.artifact import Artifact
from onnxport.formats.external_data import locations
from onnxport.pipelines.graph.known_digests import KnownDigests, Stamp, stamp_of
from onnxport.reports.run_report import ConsultedRecord


def describe(path: Path) -> Any:
    """Return the name and digest of a file or of a folder's files; InputError if it is missing or unreadable.

    The name matters: suffixes define how samples are read, and a label file's name goes into the artefact. A model
    counts with its external data.
    """
    try:
        if path.is_dir():
            tree = hashlib.sha256()
            count = 0
            for file in files_below(path):
                tree.update(file.relative_to(path).as_posix().encode() + b"\0" + _sha256_of_input(file))
                count += 1
            return {"folder": path.name, "files": count, "sha256": tree.hexdigest()}
        if path.suffix.lower() == ".onnx":
            return {"file": path.name, "sha256": digest_of_model(Artifact(path, "onnx"))}
        return {"file": path.name, "sha256": _sha256_of_input(path).hex()}
    except OSError as error:
        raise unreadable_path(path, error) from error


def with_external_data(model: Artifact) -> Artifact:
    """Return an ONNX model with its external data files, found without parsing the model."""
    if model.format != "onnx" or model.companions:
        return model
    beside = {model.path.parent / name for name in _locations(model.path, *stamp_of(model.path))}
    return Artifact(model.path, "onnx", tuple(sorted(file for file in beside if file.is_file())))


def digest_of(artifact: Artifact) -> str:
    """Return Artifact.digest; each file is read once in a run."""
    return artifact.digest(sha256)


def digest_of_model(origin: Artifact | Source) -> str:
    """Return the SHA-256 of a model of the pipeline with all its files."""
    if not isinstance(origin, Artifact):
        reads.doubt("a framework's model may have more files than its digest counts")
        return origin.digest()
    return with_external_data(origin).digest(_sha256_of_input)


def digest_of_value(value: object) -> str:
    """Return the SHA-256 of a JSON value, in a form without blanks and with sorted keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def sha256(file: Path) -> bytes:
    """Return the SHA-256 of a file; it is read again only if it was written since, not if it has a further name."""
    stamp = stamp_of(file)
    if stamp not in _seen:
        _seen[stamp] = _known_or_read(file, stamp)
    return _seen[stamp]


def _sha256_of_input(file: Path) -> bytes:
    reads.note(file)
    return sha256(file)


def files_below(folder: Path) -> Iterator[Path]:
    """Return all files in a folder, sorted by name; follows links, but no cycles."""
    seen = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        reads.note(place)
        seen.add(os.path.realpath(place))
        folders[:] = sorted(
            each for each in folders if os.path.realpath(os.path.join(place, each)) not in seen
        )
        yield from (file for name in sorted(names) if (file := Path(place, name)).is_file())


@contextmanager
def recall_digests(known: KnownDigests | None) -> Iterator[None]:
    """Take digests of large files from `known` while they are unchanged, and add to it those that are read.

    Args:
        known: None for reading every file.
    """
    _forget()
    token = _known.set(known)
    try:
        yield
    finally:
        _known.reset(token)
        _forget()  # what follows the run reads files itself
        if known is not None:
            known.save()


def _forget() -> None:
    _seen.clear()
    file_digests.forget()


_known: ContextVar[KnownDigests | None] = ContextVar("known digests", default=None)
_seen: dict[Stamp, bytes] = {}


def _known_or_read(file: Path, stamp: Stamp) -> bytes:
    known = _known.get()
    if known is not None and (digest := known.get(stamp)) is not None:
        return digest
    begun = time.time_ns()
    digest = file_digests.sha256(file)
    if known is not None and stamp_of(file) == stamp:
        known.add(stamp, digest, begun)
    return digest


@lru_cache(maxsize=1 << 10)
def _locations(file: Path, *_: int) -> frozenset[str]:
    if not file.stat().st_size:
        return frozenset()
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return locations(data)


def find_change(then: ConsultedRecord | None) -> str:
    """Describe the first change since `then`; empty if there is none."""
    if then is None:
        return ""
    for name, digest in then.modules.items():
        if _digest_or_none(find_module(name)) != digest:
            return f"the module {name} changed"
    for name, digest in then.files.items():
        if _digest_or_none(Path(name)) != digest:
            return f"{name}, which the model's code reads, changed"
    for name, version in then.libraries.items():
        if (now := _version(name)) != version:
            return f"{name} {version} is {now or 'gone'}"
    return ""


def code_in_use(then: ConsultedRecord, folder: Path) -> reads.View:
    """Look at the user code that took part in a product: files, the folders where others would be found before them.

    Args:
        folder: where modules are searched first.

    Raises:
        OSError: something changed already.
    """
    with import_from(folder):
        found = {name: find_module(name) for name in then.modules}
        if why := find_change(then):
            raise OSError(why)
    files = [*(file for file in found.values() if file is not None), *map(Path, then.files)]
    return reads.View(
        {os.path.abspath(file): reads.stamp_from(file.stat()) for file in files},
        frozenset(place for name in then.modules for place in _searched(name, folder)),
    )


def _searched(module: str, folder: Path) -> Iterator[str]:
    """Return the folders in which a new file would become the module."""
    parts = module.split(".")
    for each in (str(folder), *sys.path):
        places = (os.path.abspath(os.path.join(each, *parts[:count])) for count in range(len(parts) + 1))
        yield from filter(os.path.isdir, places)


def _digest_or_none(file: Path | None) -> str | None:
    try:
        return None if file is None else sha256(file).hex()
    except OSError:
        return None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
