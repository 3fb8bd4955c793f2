"""The registry of the lowerings in `ops/`, and the ops that can have none."""

from __future__ import annotations

from onnxport.converters.lowering import Registry, impossible_ops
from onnxport.converters.tflite.builder import TflBuilder
from onnxport.converters.tflite.values import Value

# ONNX op -> why TFLite's builtin operators cannot express it.
_IMPOSSIBLE = {
    **impossible_ops("TFLite"),
    "MelWeightMatrix": "its bins are whole parts of float64 numbers; make all its operands constants of the model",
    "Det": "TFLite needs to know the size of the matrices, of 32 rows at most; use --shape NAME=...",
    "ImageDecoder": "TFLite has no image codecs; decode outside the model",
}

REGISTRY: Registry[Value, TflBuilder] = Registry("TFLite", _IMPOSSIBLE)
lower = REGISTRY.lower
