"""Conversion of a model to another opset, newer (`lift`) or older (`lower`); `brought_to` is the whole step.

Adapters of our own and not `onnx.version_converter`: that one serializes the weights, and of 111 old forms in our
tests it refused 7, got 11 wrong and wrote 8 that do not load (version 1.23: Hardmax, Resize-10, Clip and Pad of other
types than float32, BatchNormalization with `spatial=0`, GroupNormalization, Scan and more).
"""

from onnxport.optimizers.opset.conversion import Brought, brought_to
from onnxport.optimizers.opset.downgrade import lower
from onnxport.optimizers.opset.errors import LiftError
from onnxport.optimizers.opset.upgrade import inline_functions, lift
from onnxport.optimizers.params import CANONICAL_OPSET, OLDEST_OPSET

__all__ = [
    "CANONICAL_OPSET",
    "OLDEST_OPSET",
    "Brought",
    "LiftError",
    "brought_to",
    "inline_functions",
    "lift",
    "lower",
]
