"""Lowerings of nodes to the form of the previous version, a module per subject; importing this fills the
registry."""

from onnxport.optimizers.opset.downgrades import (  # noqa: F401
    arithmetic,
    attributes,
    einsum,
    normalization,
    quantization,
    resampling,
    tensors,
)
