"""Image operators that no target has, written as simpler ones; importing this package registers them.

ONNX defines no functions for them, but for two whose definitions need a branch or 64-bit division at run time.
"""

from onnxport.optimizers.rewrites.vision import deformable, regions, sampling, windows

__all__ = [
    "deformable",
    "regions",
    "sampling",
    "windows",
]
