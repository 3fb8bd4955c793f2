"""Puts our manifest into a `.tflite` that is there already."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from onnxport.core.errors import CannotConvertError
from onnxport.formats.manifest import KEY, Manifest

_LIMIT = 2**31 - 1  # of a flatbuffer


def embed(made: Path, output: Path, manifest: Manifest) -> None:
    """Writes the file `made` with `manifest` in its metadata to `output`.

    Raises:
        CannotConvertError: it is too large to be rewritten.
    """
    if made.stat().st_size > _LIMIT:
        raise CannotConvertError(
            f"{made.name} is too large to hold a note of ours", why="a flatbuffer ends at 2 GB"
        )
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(made.read_bytes(), 0))
    buffer, entry = schema.BufferT(), schema.MetadataT()
    buffer.data = np.frombuffer(manifest.to_json().encode(), np.uint8)
    entry.name, entry.buffer = KEY, len(model.buffers)
    model.buffers.append(buffer)
    model.metadata = [*(model.metadata or []), entry]
    builder = schema.flatbuffers.Builder(made.stat().st_size)
    builder.Finish(model.Pack(builder), b"TFL3")
    output.write_bytes(builder.Output())
