"""How a node of a newer form is said in an older one, a module per subject; importing this fills the registry."""

from onnxport.optimizers.opset.downward import (
    arithmetic,
    arranging,
    attributes,
    contracting,
    normalizing,
    quantizing,
    resampling,
)

__all__ = ["arithmetic", "arranging", "attributes", "contracting", "normalizing", "quantizing", "resampling"]
