"""The table from precision to the function that quantizes to it, imported on demand."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from onnxport.quantize.contract import Quantization
from onnxport.quantize.params import Precision

# Precision to "module:function" of a Quantization.
_HOMES: Mapping[Precision, str] = {
    "int8": "onnxport.quantize.int8:quantize",
    "fp16": "onnxport.quantize.floats:to_float16",
    "bf16": "onnxport.quantize.floats:to_bfloat16",
    "int16x8": "onnxport.quantize.int8:quantize",
    "dynamic": "onnxport.quantize.dynamic:quantize",
    "int8-weights": "onnxport.quantize.weights.weight_only:quantize",
    "int4-weights": "onnxport.quantize.weights.weight_only:quantize",
}


def find_quantization(precision: Precision) -> Quantization:
    """Return the function that quantizes to `precision`."""
    module, _, function = _HOMES[precision].partition(":")
    found: Quantization = getattr(importlib.import_module(module), function)
    return found
