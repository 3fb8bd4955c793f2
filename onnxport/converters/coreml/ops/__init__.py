"""Lowerings by family; importing this package fills the registry."""

from onnxport.converters.coreml.ops import (
    activations,
    arithmetic,
    blocks,
    casting,
    comparison,
    convolution,
    elementwise,
    matmul,
    normalization,
    pooling,
    reduction,
)

__all__ = [
    "activations",
    "arithmetic",
    "blocks",
    "casting",
    "comparison",
    "convolution",
    "elementwise",
    "matmul",
    "normalization",
    "pooling",
    "reduction",
]
