"""The registry of the lowerings in `ops/`, and the ops that can have none."""

from __future__ import annotations

from onnxport.converters.coreml.builder import MilBuilder
from onnxport.converters.coreml.values import Value
from onnxport.converters.lowering import RANDOM, Registry, impossible_ops

# ONNX op -> why MIL cannot express it.
_IMPOSSIBLE = {
    **impossible_ops("Core ML"),
    "Bernoulli": RANDOM,
    "ImageDecoder": "Core ML has no image codecs for tensors; decode outside the model",
}

REGISTRY: Registry[Value, MilBuilder] = Registry("Core ML", _IMPOSSIBLE)
lower = REGISTRY.lower
