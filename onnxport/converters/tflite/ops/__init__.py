"""Lowerings by family; importing this package fills the registry."""

from onnxport.converters.tflite.ops import (
    convolution,
    elementwise,
    indexing,
    matmul,
    normalization,
    pooling,
    reduction,
    resize,
    shape,
)

__all__ = [
    "convolution",
    "elementwise",
    "indexing",
    "matmul",
    "normalization",
    "pooling",
    "reduction",
    "resize",
    "shape",
]
