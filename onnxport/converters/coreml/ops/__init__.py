"""Lowerings by family; importing this package fills the registry."""

from onnxport.converters.coreml.ops import (
    blocks,
    convolution,
    elementwise,
    matmul,
    normalization,
    pooling,
)

__all__ = [
    "blocks",
    "convolution",
    "elementwise",
    "matmul",
    "normalization",
    "pooling",
]
