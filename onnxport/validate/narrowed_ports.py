"""Inputs and outputs that are narrower in an ONNX file of ours than in its source, as the note in the file tells."""

from __future__ import annotations

from onnxport.formats.artifact import Artifact
from onnxport.runtimes.base import Runtime

# A user's `--io fp16`; the float32 form of a model of tables, which reads float64 itself.
_NARROW = frozenset({"float16", "float32"})


def source_dtypes(artifact: Artifact, runtime: Runtime) -> dict[str, str]:
    """The inputs and outputs of a model of ours that are of a wider type in its source, with that type."""
    narrow = {spec.name: spec.dtype for spec in (*runtime.inputs, *runtime.outputs) if spec.dtype in _NARROW}
    if artifact.format != "onnx" or not narrow:
        return {}
    from onnxport.validate.precision import onnx

    model = onnx.read(artifact.path)
    note = None if model is None else onnx.note_in(model)
    ports = () if note is None else (*note.inputs, *note.outputs)
    return {port.key: port.dtype for port in ports if narrow.get(port.key, port.dtype) != port.dtype}
