"""Inputs and outputs whose type a user had changed, as the note in the file tells."""

from __future__ import annotations

from onnxport.artifact import Artifact
from onnxport.validate.runtimes.base import Runtime

_NARROW = "float16"


def source_dtypes(artifact: Artifact, runtime: Runtime) -> dict[str, str]:
    """The float16 inputs and outputs of a model of ours (`--io fp16`) that are wider in its source, with that type."""
    narrow = {spec.name for spec in (*runtime.inputs, *runtime.outputs) if spec.dtype == _NARROW}
    if artifact.format != "onnx" or not narrow:
        return {}
    from onnxport.validate.precision import onnx

    model = onnx.read(artifact.path)
    note = None if model is None else onnx.note_in(model)
    ports = () if note is None else (*note.inputs, *note.outputs)
    return {port.key: port.dtype for port in ports if port.key in narrow and port.dtype != _NARROW}
