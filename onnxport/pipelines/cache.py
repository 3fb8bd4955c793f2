"""The cache of pipelines: products by the digest of all that they follow from (graph/keys.py).

An entry is a folder `<key>` with the product's files and `entry.json`, which says their digests, what the judge said of
them and what they follow from. It appears by one rename and is never written again, so that runs that share the folder,
on one machine or several, need no lock; what is damaged is found by its digests and dropped.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxport.artifact import Artifact, writing
from onnxport.errors import MachineError
from onnxport.pipelines.report import RunReport

_FOLDER = ".onnxport"
_ENTRY = "entry.json"
_FORM = 1


def folder_beside(pipeline: Path) -> Path:
    """Where the cache of a pipeline lies: `$ONNXPORT_CACHE`, else .onnxport beside its file."""
    return _home(pipeline) / "stages"


def timings_beside(pipeline: Path) -> Path:
    """Where figures of latency are kept (timing.py)."""
    return _home(pipeline) / "timings"


def _home(pipeline: Path) -> Path:
    chosen = os.environ.get("ONNXPORT_CACHE")
    return Path(chosen) if chosen else pipeline.parent / _FOLDER


@dataclass(frozen=True)
class Entry:
    """A product that is kept.

    Attributes:
        artifact: where it lies, to be read and never written.
        report: of the run that made it.
        inputs: what it follows from.
    """

    key: str
    artifact: Artifact
    report: RunReport
    inputs: Mapping[str, Any]


class Cache:
    """The entries below `folder`, which need not exist yet.

    Use as a context manager: leaving removes what this run was making and did not finish.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._new = folder / "new" / f"{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}"

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._new, ignore_errors=True)

    def get(self, key: str) -> Entry | None:
        """The entry of `key`; None where there is none, or one that is damaged, which is dropped."""
        place = self._place(key)
        try:
            return _read(key, place)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            shutil.rmtree(place, ignore_errors=True)
            return None

    def room(self, node: str) -> Path:
        """An empty folder in which a product may be made that `put` is to take.

        Raises:
            MachineError: the cache cannot be written to.
        """
        with self._writing():
            self._new.mkdir(parents=True, exist_ok=True)
            room = self._new / os.urandom(8).hex()
            room.mkdir()
        return room

    def put(self, key: str, room: Path, report: RunReport, inputs: Mapping[str, Any]) -> Entry:
        """Keeps the product in `room` under `key`; where another run was faster, its entry stands.

        Raises:
            MachineError: the cache cannot be written to.
        """
        main = Path(report.artifacts[0].path or "").name
        with self._writing():
            described = {
                "form": _FORM,
                "main": main,
                "files": {name: _sha(room / name) for name in _files(room)},
                "report": report.model_dump(mode="json"),
                "inputs": dict(inputs),
            }
            (room / _ENTRY).write_text(json.dumps(described, indent=1, sort_keys=True), encoding="utf-8")
            place = self._place(key)
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                room.rename(place)
            except OSError:
                if not place.is_dir():
                    raise
                shutil.rmtree(room, ignore_errors=True)
        entry = self.get(key)
        if entry is None:
            raise MachineError(f"what was just kept in {self.folder} cannot be read again")
        return entry

    def _place(self, key: str) -> Path:
        return self.folder / key[:2] / key

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with writing(self.folder, "the cache"):
            yield


def _read(key: str, place: Path) -> Entry:
    described = json.loads((place / _ENTRY).read_text(encoding="utf-8"))
    if described["form"] != _FORM or described["files"] != {
        name: _sha(place / name) for name in _files(place)
    }:
        raise ValueError("damaged")
    report = RunReport.model_validate(described["report"])
    artifact = Artifact.open(place / described["main"])
    companions = tuple(place / Path(each.path).name for each in report.artifacts[0].companions)
    return Entry(key, Artifact(artifact.path, artifact.format, companions), report, described["inputs"])


def _files(folder: Path) -> Iterator[str]:
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if file.is_file() and name != _ENTRY:
            yield name


def _sha(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
