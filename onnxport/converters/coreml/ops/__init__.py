"""Lowerings by family; importing this package fills the registry."""

from onnxport.converters.coreml.ops import (
    blocks,
    convolution,
    elementwise,
    generation,
    indexing,
    joining,
    matmul,
    normalization,
    ordering,
    padding,
    pooling,
    reshaping,
    scattering,
    slicing,
)

__all__ = [
    "blocks",
    "convolution",
    "elementwise",
    "generation",
    "indexing",
    "joining",
    "matmul",
    "normalization",
    "ordering",
    "padding",
    "pooling",
    "reshaping",
    "scattering",
    "slicing",
]
