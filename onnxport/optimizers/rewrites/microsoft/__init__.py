"""Rewritings of the domain com.microsoft, which ONNX Runtime's optimizer and quantizer write.

Importing this package registers them. Each is held to ONNX Runtime's own kernel (tests/optimizers/test_microsoft.py).
"""

from onnxport.optimizers.rewrites.microsoft import (
    activations,
    attention,
    equivalents,
    fused,
    normalization,
    quantized,
    rotary,
)

__all__ = [
    "activations",
    "attention",
    "equivalents",
    "fused",
    "normalization",
    "quantized",
    "rotary",
]
