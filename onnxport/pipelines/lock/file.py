"""The lock on disk: its path, reading, and updates by runs that may end at the same time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from onnxport.core.errors import InputError
from onnxport.formats.artifact import Staging, writing
from onnxport.pipelines.config.pipeline import Cell, Pipeline
from onnxport.pipelines.lock.document import parse, text_of
from onnxport.pipelines.lock.entries import LockedArtefact, relative

SUFFIX = ".lock"


@dataclass(frozen=True)
class Lock:
    """The content of a lock.

    Attributes:
        artefacts: by their path from its folder.
    """

    path: Path
    artefacts: Mapping[str, LockedArtefact]

    @classmethod
    def read(cls, path: Path) -> Lock | None:
        """Read the lock at `path`; None if there is no file.

        Raises:
            UsageError: it is damaged or of another version; the message has the line.
            InputError: it cannot be read.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            text = "\0"  # which YAML refuses
        except OSError as error:
            raise InputError(f"{path} cannot be read", why=error.strerror or str(error)) from error
        return cls(path, parse(path, text))


def lock_of(pipeline: Path) -> Path:
    """Return the path of the lock of a pipeline's file."""
    return pipeline.with_suffix(SUFFIX)


def place_of(cell: Cell, pipeline: Pipeline) -> str:
    """Return the key of a cell's artefact in the lock."""
    return relative(cell.output, pipeline.folder)


def update(pipeline: Pipeline, made: Mapping[str, LockedArtefact]) -> None:
    """Write `made` to the pipeline's lock, and keep the entries of other artefacts of the file.

    Raises:
        UsageError: the lock that is there is damaged.
        MachineError: it cannot be written.
    """
    path = lock_of(pipeline.path)
    wanted = {place_of(cell, pipeline) for cell in pipeline.cells}
    with writing(path, "the pipeline"), _exclusive(path.parent):
        before = Lock.read(path)
        kept = {} if before is None else before.artefacts
        artefacts = {place: each for place, each in {**kept, **made}.items() if place in wanted}
        text = text_of(pipeline.path.name, artefacts)
        if (before is None and not artefacts) or (before is not None and _has_text(path, text)):
            return
        with Staging(path, "the pipeline") as staging:
            staged = staging.folder / path.name
            staged.write_text(text, encoding="utf-8", newline="\n")
            staging.commit({staged: path})
            Staging.settled = False  # Ctrl-C may still stop what follows


def _has_text(path: Path, text: str) -> bool:
    return path.read_bytes() == text.encode()


@contextlib.contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Make other runs that update a lock in `folder` wait; on systems without flock the last one wins."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a network's file system may lock no folder
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)
