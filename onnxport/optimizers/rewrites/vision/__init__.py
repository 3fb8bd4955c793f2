"""Image operators that no target has, written as simpler ones; importing this package registers them."""

from onnxport.optimizers.rewrites.vision import deformable, regions, sampling, windows  # noqa: F401
