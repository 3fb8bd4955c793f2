"""Lowerings by family; importing this package fills the registry."""

from onnxport.converters.coreml.ops import elementwise

__all__ = ["elementwise"]
