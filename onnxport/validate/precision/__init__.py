"""What an artefact computes in, told by its file; a module per kind of graph. docs/fidelity.md has it in words."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from onnxport.formats.artifact import Artifact, Referent
from onnxport.validate.report import Precision

if TYPE_CHECKING:
    from onnxport.formats.model import Model

__all__ = ["kept_float32", "precision_of"]

# What the FlatBuffers library raises for offsets that lead nowhere.
_DAMAGED = (struct.error, IndexError, TypeError, ValueError, KeyError, AttributeError, BufferError)


def precision_of(artifact: Referent, graph: Model | None = None, function: str = "") -> Precision:
    """The precision of the model in `artifact`; "unknown" for a file that its reader cannot make sense of.

    Args:
        graph: the model in memory, where the caller has it already; of a framework's model what was exported from it.
        function: which of a package's functions is meant; its default one unless given.
    """
    # Each imports its own libraries.
    if artifact.format == "tflite":
        from onnxport.validate.precision import tflite

        try:
            return tflite.precision(artifact.path)
        except _DAMAGED:  # in a place that the runtime never looks at, or it would have refused the file
            return "unknown"
    if artifact.format == "coreml":
        from onnxport.validate.precision import coreml

        return coreml.precision(artifact.path, function)
    from onnxport.validate.precision import graphs, onnx

    if artifact.format == "ort":
        try:
            data = artifact.path.read_bytes()
            return "float16" if onnx.is_half(onnx.note_in_ort(data)) else graphs.precision(onnx.of_ort(data))
        except (
            ValueError,
            KeyError,
            IndexError,
        ):  # a younger schema than ours; loading it is the runtime's affair
            return "unknown"
    model = graph or onnx.read(artifact.path)
    if model is None:
        return "unknown"
    return "float16" if onnx.is_half(onnx.note_in(model)) else graphs.precision(onnx.of_model(model))


def kept_float32(artifact: Artifact, function: str = "") -> frozenset[str]:
    """The ONNX values that a float16 artefact computes or holds in float32: as a package or an .ort file of ours says
    of itself, or as the types of an ONNX graph tell; none of other files."""
    if artifact.format == "coreml":
        from onnxport.validate.precision import coreml

        return coreml.islands(artifact.path, function)
    if artifact.format == "onnx":
        from onnxport.validate.precision import graphs, onnx

        return graphs.islands(onnx.of_file(artifact.path))
    if artifact.format == "ort":
        from onnxport.validate.precision import onnx

        try:
            note = onnx.note_in_ort(artifact.path.read_bytes())
        except _DAMAGED:
            return frozenset()
        return frozenset(note.islands) if note else frozenset()
    return frozenset()
