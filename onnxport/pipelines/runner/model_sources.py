"""Reads model files with clear errors, guards them against changes, and identifies them for the report."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from onnxport.core.errors import InputError
from onnxport.formats.artifact import Artifact, Referent, Stamp
from onnxport.reports.run_report import SourceRecord

if TYPE_CHECKING:
    from onnxport.formats.model import Model

_LABELS = 5  # in a note


@contextmanager
def reading(artifact: Referent) -> Iterator[None]:
    """Turn the operating system's error about a file of the artefact into an InputError."""
    try:
        yield
    except OSError as error:
        file = error.filename or artifact.path
        raise InputError(f"{file} cannot be read", why=error.strerror or str(error)) from error


@contextmanager
def unchanged(*artifacts: Referent) -> Iterator[None]:
    """Refuse the result of the block if one of the files changes meanwhile (InputError).

    Each file is read more than once, also by child processes; a verdict on a mixture would be worthless.
    """
    before = [artifact.stamp for artifact in artifacts]
    try:
        yield
    finally:
        for artifact, stamp in zip(artifacts, before, strict=True):
            now: Stamp = ()
            with suppress(OSError):  # it is gone
                now = artifact.stamp
            if not _are_same(stamp, now) and not isinstance(sys.exception(), KeyboardInterrupt):
                what = f"{artifact.path} changed while it was read"
                raise InputError(what, fix="run again when it is done")


def _are_same(before: Stamp, now: Stamp) -> bool:
    return len(before) == len(now) and all(
        one[:3] == other[:3] and (one[3] == other[3] or not (one[3] and other[3]))
        for one, other in zip(before, now, strict=True)
    )


def load(source: Artifact) -> tuple[Model, Artifact]:
    """Return the model, and its artefact with all its files."""
    from onnxport.formats.model import Model

    model = Model.load(source.path)
    return model, model.artifact


def origin_of(source: Referent) -> SourceRecord:
    return SourceRecord(path=str(source.path), format=source.format, size=source.size, digest=source.digest())


def describe_labels(model: Model) -> tuple[str, ...]:
    """Return a note for each output that is a tensor in place of dictionaries."""
    return tuple(
        f"ZipMap was dropped: {name!r} is a tensor with a column for each of {len(labels)} labels "
        f"({_listed(labels)}); the artefact's metadata has them"
        for name, labels in model.labels.items()
    )


def _listed(labels: Sequence[object]) -> str:
    shown = ", ".join(map(str, labels[:_LABELS]))
    return f"{shown}, ..." if len(labels) > _LABELS else shown
