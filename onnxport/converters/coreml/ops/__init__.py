"""The lowerings, one file per family of operators; importing this package fills the registry."""

from onnxport.converters.coreml.ops import branching, elementwise, looping, quantization

__all__ = ["branching", "elementwise", "looping", "quantization"]
