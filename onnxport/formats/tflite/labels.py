"""The label files that a `.tflite` file's metadata name, as the Task Library and tflite-support find them.

The metadata is a flatbuffer of its own (metadata_schema.fbs), read here by its layout; the files are in a zip archive
behind the model.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ai_edge_litert import schema_py_generated as schema

from onnxport.core.archives import DAMAGED_ARCHIVE

NAME = "TFLITE_METADATA"  # of the buffer
_TABLE = schema.flatbuffers.table.Table
_KIND = schema.flatbuffers.number_types.Int8Flags
_LABELS = (2, 3)  # enum AssociatedFileType: of the positions along an axis, of the values
# A hostile file may name its files a million times, pack gigabytes of zeros, or have a name of megabytes.
_MOST, _LARGEST, _LONGEST = 64, 4 << 20, 1024
_DAMAGED = (struct.error, IndexError, TypeError, ValueError, AttributeError)
# Positions of the fields in their tables.
_SUBGRAPHS, _OUTPUTS, _FILES = 3, 3, 6


@dataclass(frozen=True)
class Labels:
    """A label file of an output.

    Attributes:
        place: the output's position in the subgraph.
        labels: None where the archive lacks the file, or it cannot be read.
    """

    place: int
    file: str
    labels: tuple[str, ...] | None


def read_labels(path: Path, metadata: bytes) -> tuple[Labels, ...]:
    """Read the label files of the model at `path`; none where its `metadata` is damaged."""
    try:
        named = tuple(islice(_named(metadata), _MOST))
    except _DAMAGED:
        return ()
    contents = {file: _lines(path, file) for file in {file for _, file in named}}
    return tuple(Labels(place, file, contents[file]) for place, file in named)


def _named(metadata: bytes) -> Iterator[tuple[int, str]]:
    """Yield the label files' names, each with the position of its output."""
    root = _TABLE(metadata, int.from_bytes(metadata[:4], "little"))
    for graph in islice(_items(root, _SUBGRAPHS), 1):
        for place, output in enumerate(_items(graph, _OUTPUTS)):
            for file in _items(output, _FILES):
                kind = file.Offset(_field(2))
                if kind and file.Get(_KIND, file.Pos + kind) in _LABELS:
                    yield place, _name(file)


def _name(file: Any) -> str:
    offset = file.Offset(_field(0))
    if not offset or file.VectorLen(offset) > _LONGEST:
        raise ValueError("a label file without a name")
    return bytes(file.String(file.Pos + offset)).decode()


def _items(table: Any, field: int) -> Iterator[Any]:
    """Yield the tables in a vector."""
    offset = table.Offset(_field(field))
    if offset:
        start = table.Vector(offset)
        for i in range(table.VectorLen(offset)):
            yield _TABLE(table.Bytes, table.Indirect(start + 4 * i))


def _field(position: int) -> int:
    """Return the place of a field in a flatbuffer's table of offsets."""
    return 4 + 2 * position


def _lines(path: Path, name: str) -> tuple[str, ...] | None:
    try:
        with zipfile.ZipFile(path) as archive, archive.open(name) as file:
            content = file.read(_LARGEST + 1)
        return tuple(content.decode("utf-8-sig").splitlines()) if len(content) <= _LARGEST else None
    except DAMAGED_ARCHIVE:
        return None
