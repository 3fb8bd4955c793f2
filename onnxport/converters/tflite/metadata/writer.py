"""TFLite metadata: what the Task Library and tflite-support read of a model's inputs, outputs and label files.

A flatbuffer of the published schema (tensorflow_lite_support/metadata/metadata_schema.fbs, file identifier M001) in the
model's metadata buffer TFLITE_METADATA; the label files are a zip archive behind the model, stored as they are.
"""

from __future__ import annotations

import zipfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ai_edge_litert import schema_py_generated as schema

from onnxport.converters.app_metadata import Normalization
from onnxport.converters.tflite.metadata.labels import LabelFile
from onnxport.formats.manifest import Port

NAME = "TFLITE_METADATA"
_IDENTIFIER = b"M001"
# Every field that is written is in the first version of the schema.
_PARSER = "1.0.0"
# Where zip's time begins: the same labels give the same bytes.
_NO_TIME = (1980, 1, 1, 0, 0, 0)
_IMAGE, _FEATURE = 2, 1  # union ContentProperties
_NORMALIZATION = 1  # union ProcessUnitOptions
_COLORS = {3: 1, 1: 2}  # channels -> RGB or GRAYSCALE


def metadata(
    name: str,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    normalization: Mapping[str, Normalization],
    labels: Collection[LabelFile],
) -> bytes:
    """The metadata flatbuffer of a model with these inputs and outputs, in the order of its signature."""
    made = _Writer()
    tensors = [_input(made, port, normalization.get(port.name)) for port in inputs]
    results = [_output(made, port, [file for file in labels if file.output == port.name]) for port in outputs]
    graph = made.table(7, {2: made.tables(tensors), 3: made.tables(results)})
    model = made.table(8, {0: made.text(name), 3: made.tables([graph]), 7: made.text(_PARSER)})
    return made.finished(model)


def pack(path: Path, labels: Collection[LabelFile]) -> None:
    """Appends the label files to the model at `path`."""
    if not labels:
        return
    with zipfile.ZipFile(path, "a", zipfile.ZIP_STORED) as archive:
        for name, content in sorted({(file.name, file.content) for file in labels}):
            archive.writestr(zipfile.ZipInfo(name, _NO_TIME), content)


def _input(made: _Writer, port: Port, normalization: Normalization | None) -> int:
    if normalization is None:
        return made.table(7, {0: made.text(port.name)})
    mean, std = map(made.floats, normalization)
    options = made.table(2, {0: mean, 1: std})
    unit = made.table(2, {1: options}, {0: _NORMALIZATION})
    fields = {0: made.text(port.name), 3: _content(made, port), 4: made.tables([unit])}
    return made.table(7, fields)


def _content(made: _Writer, port: Port) -> int:
    """An image where the input is one of 1 or 3 channels, in either layout; else plain features."""
    channels = (
        {dim for dim in (port.shape[1], port.shape[3]) if dim in _COLORS} if len(port.shape) == 4 else set()
    )
    if not channels:
        return made.table(2, {1: made.table(0, {})}, {0: _FEATURE})
    image = made.table(2, {}, {0: _COLORS[max(channels)]})
    return made.table(2, {1: image}, {0: _IMAGE})


def _output(made: _Writer, port: Port, labels: Sequence[LabelFile]) -> int:
    if not labels:
        return made.table(7, {0: made.text(port.name)})
    files = [
        made.table(4, {0: made.text(file.name), 1: made.text(_MEANING[file.kind])}, {2: file.kind})
        for file in labels
    ]
    return made.table(7, {0: made.text(port.name), 6: made.tables(files)})


_MEANING = {2: "Labels of the positions along an axis.", 3: "Labels of the values."}


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
        """A table of so many fields, with offsets of children and enumeration values by the field's place."""
        self.builder.StartObject(fields)
        for place, offset in offsets.items():
            self.builder.PrependUOffsetTRelativeSlot(place, offset, 0)
        for place, number in numbers.items():
            self.builder.PrependInt8Slot(place, number, 0)
        return int(self.builder.EndObject())

    def finished(self, root: int) -> bytes:
        self.builder.Finish(root, file_identifier=_IDENTIFIER)
        return bytes(self.builder.Output())
