"""TFLite metadata, from which the Task Library and tflite-support read inputs, outputs and label files.

A flatbuffer of the published schema (tensorflow_lite_support/metadata/metadata_schema.fbs, file identifier M001) in the
model's metadata buffer TFLITE_METADATA; the label files follow the model as an uncompressed zip archive.
"""

from __future__ import annotations

import zipfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ai_edge_litert import schema_py_generated as schema

from onnxport.converters.tflite.metadata.labels import AXIS, VALUE, LabelFile
from onnxport.formats.manifest import Port

if TYPE_CHECKING:
    from onnxport.converters.app_metadata import Normalization

_IDENTIFIER = b"M001"
# The first version of the schema has every field that is written.
_PARSER = "1.0.0"
# The first date of a zip archive, so that the same labels give the same bytes.
_NO_TIME = (1980, 1, 1, 0, 0, 0)
_IMAGE, _FEATURE = 2, 1  # union ContentProperties
_NORMALIZATION = 1  # union ProcessUnitOptions
_COLORS = {3: 1, 1: 2}  # channels -> RGB or GRAYSCALE


def write_metadata(
    name: str,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    normalization: Mapping[str, Normalization],
    labels: Collection[LabelFile],
) -> bytes:
    """Write the metadata flatbuffer; inputs and outputs are in the order of the model's signature."""
    writer = _Writer()
    tensors = [_input(writer, port, normalization.get(port.name)) for port in inputs]
    results = [_output(writer, port, [f for f in labels if f.output == port.name]) for port in outputs]
    graph = writer.table(7, {2: writer.tables(tensors), 3: writer.tables(results)})
    fields = {0: writer.text(name), 3: writer.tables([graph]), 7: writer.text(_PARSER)}
    return writer.finish(writer.table(8, fields))


def pack_labels(path: Path, labels: Collection[LabelFile]) -> None:
    """Append the label files to the model at `path`."""
    if not labels:
        return
    with zipfile.ZipFile(path, "a", zipfile.ZIP_STORED) as archive:
        for name, content in sorted({(file.name, file.content) for file in labels}):
            archive.writestr(zipfile.ZipInfo(name, _NO_TIME), content)


def _input(writer: _Writer, port: Port, normalization: Normalization | None) -> int:
    if normalization is None:
        return writer.table(7, {0: writer.text(port.name)})
    mean, std = map(writer.floats, normalization)
    options = writer.table(2, {0: mean, 1: std})
    unit = writer.table(2, {1: options}, {0: _NORMALIZATION})
    fields = {0: writer.text(port.name), 3: _content(writer, port), 4: writer.tables([unit])}
    return writer.table(7, fields)


def _content(writer: _Writer, port: Port) -> int:
    """An image if the input has four axes and 1 or 3 channels, in either layout; else plain features."""
    dims = (port.shape[1], port.shape[3]) if len(port.shape) == 4 else ()
    channels = [dim for dim in dims if dim in _COLORS]
    if not channels:
        return writer.table(2, {1: writer.table(0, {})}, {0: _FEATURE})
    image = writer.table(2, {}, {0: _COLORS[max(channels)]})
    return writer.table(2, {1: image}, {0: _IMAGE})


def _output(writer: _Writer, port: Port, labels: Sequence[LabelFile]) -> int:
    if not labels:
        return writer.table(7, {0: writer.text(port.name)})
    files = []
    for file in labels:
        texts = {0: writer.text(file.name), 1: writer.text(_DESCRIPTIONS[file.kind])}
        files.append(writer.table(4, texts, {2: file.kind}))
    return writer.table(7, {0: writer.text(port.name), 6: writer.tables(files)})


_DESCRIPTIONS = {AXIS: "Labels of the positions along an axis.", VALUE: "Labels of the values."}


@dataclass
class _Writer:
    """A flatbuffer under construction: children first, each named by its offset."""

    builder: schema.flatbuffers.Builder = field(default_factory=lambda: schema.flatbuffers.Builder(1024))

    def text(self, text: str) -> int:
        return int(self.builder.CreateString(text))

    def floats(self, values: Sequence[float]) -> int:
        self.builder.StartVector(4, len(values), 4)
        for value in reversed(values):
            self.builder.PrependFloat32(value)
        return int(self.builder.EndVector())

    def tables(self, offsets: Sequence[int]) -> int:
        self.builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.builder.PrependUOffsetTRelative(offset)
        return int(self.builder.EndVector())

    def table(self, fields: int, offsets: Mapping[int, int], numbers: Mapping[int, int] = {}) -> int:
        """Write a table of `fields` fields; offsets of children and enumeration values by the field's position."""
        self.builder.StartObject(fields)
        for place, offset in offsets.items():
            self.builder.PrependUOffsetTRelativeSlot(place, offset, 0)
        for place, number in numbers.items():
            self.builder.PrependInt8Slot(place, number, 0)
        return int(self.builder.EndObject())

    def finish(self, root: int) -> bytes:
        self.builder.Finish(root, file_identifier=_IDENTIFIER)
        return bytes(self.builder.Output())
