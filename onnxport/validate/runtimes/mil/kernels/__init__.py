"""Kernels by family; importing this package fills the registry."""

from onnxport.validate.runtimes.mil.kernels import (
    activation,
    arrangement,
    convolution,
    elementwise,
    normalization,
    pooling,
    recurrent,
    resizing,
)

__all__ = [
    "activation",
    "arrangement",
    "convolution",
    "elementwise",
    "normalization",
    "pooling",
    "recurrent",
    "resizing",
]
