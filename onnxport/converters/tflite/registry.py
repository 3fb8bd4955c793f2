"""The registry that every file of `ops/` adds its lowerings to."""

from __future__ import annotations

from onnxport.converters.lowering import Registry
from onnxport.converters.tflite.builder import TflBuilder, Value

REGISTRY: Registry[Value, TflBuilder] = Registry()
lower = REGISTRY.lower
