"""Rewritings of the domain com.microsoft, which ONNX Runtime's optimizer and quantizer write.

Importing this package registers them. tests/optimizers/test_microsoft.py compares each with ONNX Runtime's kernel.
"""

from onnxport.optimizers.rewrites.microsoft import (  # noqa: F401
    attention,
    equivalents,
    fused,
    normalization,
    quantized,
)
