"""Packs a task with its files for another machine, and translates the paths of its report back.

A parcel maps every path to a bundle of files. The other side unpacks the bundles into its own folders, with the same
relative paths. Its reports use the sender's paths.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnxport.core.errors import InputError, OnnxportError
from onnxport.exporters.sources import Source
from onnxport.formats.artifact import Artifact
from onnxport.optimizers.params import OptimizeParams
from onnxport.pipelines.executors.task import Task
from onnxport.pipelines.runner.model_sources import load
from onnxport.reports.run_report import RunReport

# Maximum bytes of files: beyond, sending takes longer than the work.
_MOST = 4 * 2**30
_ROOM = -1
# Kinds of sources that may run other code, or need a tool of this machine.
_AT_HOME = frozenset({"python", "pickle", "paddle"})

# A path: the number of its bundle, or _ROOM, and its name in there.
_Place = tuple[int, str]


class NotPortable(Exception):
    """A task that must run on this machine; the message says why."""


@dataclass(frozen=True)
class Bundle:
    """Files that stay together, with names relative to their folder."""

    root: Path
    names: tuple[str, ...]

    @property
    def stamp(self) -> object:
        """Changes when a file is written."""
        stats = [(self.root / name).stat() for name in self.names]
        return (self.root, self.names, *((found.st_ino, found.st_size, found.st_mtime_ns) for found in stats))

    def read(self) -> dict[str, bytes]:
        """Return the files' contents; InputError if one cannot be read."""
        try:
            return {name: (self.root / name).read_bytes() for name in self.names}
        except OSError as error:
            raise InputError(f"{error.filename} cannot be read", why=error.strerror or str(error)) from error


@dataclass(frozen=True)
class Parcel:
    """A task without its files.

    Attributes:
        task: pickled, its paths as `_Place`s.
        room: the sender's folder for the product.
        paths: every place with the sender's path.
        bundles: the files that it needs when it is opened.
    """

    task: bytes
    room: str
    paths: tuple[tuple[_Place, str], ...]
    bundles: tuple[Bundle, ...]

    @classmethod
    def of(cls, task: Task) -> Parcel:
        """Pack `task`; NotPortable if it needs more than files, or too many bytes."""
        _check_portable(task)
        stream = io.BytesIO()
        packing = _Packing(stream, task.room)
        main = task.origin.path if isinstance(task.origin, Source) else None
        # A portable task runs none of the user's modules.
        origin = replace(task.origin, folder=None) if isinstance(task.origin, Source) else task.origin
        packing.dump((replace(task, folder=None, origin=origin), main))
        size = sum((bundle.root / name).stat().st_size for bundle in packing.bundles for name in bundle.names)
        if size > _MOST:
            raise NotPortable(f"its files have {size} bytes")
        paths = tuple((place, str(path)) for path, place in packing.places.items())
        return cls(stream.getvalue(), str(task.room), paths, tuple(packing.bundles))

    def open(self, folders: Sequence[Path], room: Path) -> Task:
        """Return the task with the paths of this machine: `folders` of the unpacked bundles, and an empty `room`."""
        task, main = _Opening(io.BytesIO(self.task), (*folders, room)).load()
        assert isinstance(task, Task)
        if isinstance(task.origin, Source):
            task = replace(task, origin=replace(task.origin, name=str(main)))
        return task

    def return_paths(self, folders: Sequence[Path], room: Path) -> PathMapping:
        """Return the mapping of this machine's paths to the sender's."""
        here = [
            (str(folders[number] / name), there) for (number, name), there in self.paths if number != _ROOM
        ]
        return PathMapping(((str(room), self.room), *here))


@dataclass(frozen=True)
class PathMapping:
    """Paths of this machine, each with the sender's."""

    paths: tuple[tuple[str, str], ...]

    def report(self, report: RunReport) -> RunReport:
        return RunReport.model_validate(self._value(report.model_dump(mode="json")))

    def failure(self, failure: Exception) -> Exception:
        if isinstance(failure, OnnxportError):
            failure.what, failure.why, failure.fix = map(self._text, (failure.what, failure.why, failure.fix))
        return failure

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            return {key: self._value(each) for key, each in value.items()}
        return [self._value(each) for each in value] if isinstance(value, list) else value

    def _text(self, text: str) -> str:
        for here, there in sorted(self.paths, key=lambda pair: -len(pair[0])):
            text = text.replace(here, there)
        return text


class _Packing(pickle.Pickler):
    """Pickles a task; replaces its paths by places and collects their bundles."""

    def __init__(self, stream: io.BytesIO, room: Path) -> None:
        super().__init__(stream, pickle.HIGHEST_PROTOCOL)
        self.bundles: list[Bundle] = []
        self.places: dict[Path, _Place] = {room: (_ROOM, "")}

    def persistent_id(self, found: Any) -> _Place | None:
        if isinstance(found, Artifact):  # before its single paths: its files belong together
            self._bundle(found.path, found.files)
        elif isinstance(found, Source):
            beside = found.path.parent
            self._bundle(found.path, [file for file in found.files if beside in file.parents])
        elif isinstance(found, Path):
            if found not in self.places:
                self._bundle(found, list(_files_of(found)))
            return self.places[found]
        return None

    def _bundle(self, path: Path, files: Sequence[Path]) -> None:
        """Add a bundle of `files`; `path` is their main file or their folder."""
        if path in self.places:
            return
        root = path.parent
        names = tuple(file.relative_to(root).as_posix() for file in files)
        number = len(self.bundles)
        self.bundles.append(Bundle(root, names))
        self.places |= {file: (number, name) for file, name in zip(files, names, strict=True)}
        self.places[path] = (number, path.name)


class _Opening(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, folders: Sequence[Path]) -> None:
        super().__init__(stream)
        self._folders = folders

    def persistent_load(self, place: _Place) -> Path:
        number, name = place
        return self._folders[number] / name  # the room is the last


def _files_of(path: Path) -> Iterator[Path]:
    """Return the files that `path` needs; NotPortable if there is none, or they are not all below it."""
    if path.name in ("", ".."):
        raise NotPortable(f"{path} has no name of its own")
    if path.is_file():
        yield from load(Artifact.open(path))[1].files if path.suffix.lower() == ".onnx" else (path,)
        return
    if not path.is_dir():
        raise NotPortable(f"{path} does not exist")
    for folder, folders, files in os.walk(path):
        if any(Path(folder, name).is_symlink() for name in folders):
            raise NotPortable(f"{folder} holds links to folders")
        yield from (Path(folder, name) for name in sorted(files))


def _check_portable(task: Task) -> None:
    if task.export is not None and (task.origin.format in _AT_HOME or task.export.trust):
        raise NotPortable("it runs the user's code, or a tool of this machine")
    if task.validation is not None and (task.validation.metric or task.validation.report_tensors):
        raise NotPortable("its proof runs the user's code, or writes its own file")
    params = task.steps[-1].params if task.steps else None
    if getattr(params, "scheduler", None):
        raise NotPortable("it uses the cluster itself, which could wait for itself forever")
    if isinstance(params, OptimizeParams) and params.level == "ort-all":
        raise NotPortable("it is made for this machine")
    if getattr(params, "route", None) == "onnx2tf" or getattr(params, "onnx2tf", None):
        raise NotPortable("it runs a tool of this machine")
