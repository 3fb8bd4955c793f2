"""Conversion of a model to another opset, newer (`lift`) or older (`lower`); `convert_opset` is the whole step.

Not `onnx.version_converter` (1.23): it serializes the weights, and of 111 old forms in our tests it refuses 7,
converts 11 wrongly and writes 8 that do not load.
"""

from onnxport.optimizers.opset.conversion import convert_opset
from onnxport.optimizers.opset.downgrade import lower
from onnxport.optimizers.opset.errors import LiftError
from onnxport.optimizers.opset.upgrade import inline_functions, lift
from onnxport.optimizers.params import CANONICAL_OPSET, OLDEST_OPSET

__all__ = [
    "CANONICAL_OPSET",
    "OLDEST_OPSET",
    "LiftError",
    "convert_opset",
    "inline_functions",
    "lift",
    "lower",
]
