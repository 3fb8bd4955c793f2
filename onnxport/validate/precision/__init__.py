"""What an artefact computes in, told by its file; a module per kind of graph. docs/fidelity.md has it in words."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from onnxport.artifact import Artifact
from onnxport.validate.report import Precision

if TYPE_CHECKING:
    from onnxport.model import Model

__all__ = ["kept_float32", "precision_of"]

# What the FlatBuffers library raises for offsets that lead nowhere.
_DAMAGED = (struct.error, IndexError, TypeError, ValueError, KeyError, AttributeError, BufferError)


def precision_of(artifact: Artifact, graph: Model | None = None, function: str = "") -> Precision:
    """The precision of the model in `artifact`; "unknown" for a file that its reader cannot make sense of.

    Args:
        graph: the model in memory, where the caller has it already.
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
            return graphs.precision(onnx.of_ort(artifact.path.read_bytes()))
        except (
            ValueError,
            KeyError,
            IndexError,
        ):  # a younger schema than ours; loading it is the runtime's affair
            return "unknown"
    if onnx.is_half(artifact.path if graph is None else graph):
        return "float16"
    return graphs.precision(onnx.of_model(graph) if graph else onnx.of_file(artifact.path))


def kept_float32(artifact: Artifact, function: str = "") -> frozenset[str]:
    """The ONNX values that a float16 artefact computes in float32: as a package says of itself, or as the types of an
    ONNX graph tell; none of other formats."""
    if artifact.format == "coreml":
        from onnxport.validate.precision import coreml

        return coreml.islands(artifact.path, function)
    if artifact.format == "onnx":
        from onnxport.validate.precision import graphs, onnx

        return graphs.islands(onnx.of_file(artifact.path))
    return frozenset()
