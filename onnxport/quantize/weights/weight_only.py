"""Weight-only quantization: weights in 8 or 4 bits, arithmetic in floats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from onnxport.errors import CannotConvertError, UsageError
from onnxport.model import Model
from onnxport.optimizers import shapes
from onnxport.optimizers.opset import lift
from onnxport.quantize.params import QuantizeParams
from onnxport.quantize.setting import Quantized, Setting
from onnxport.quantize.weights import gptq, hqq, nbits, rtn
from onnxport.quantize.weights.dequantizing import dequantize, opset_for
from onnxport.quantize.weights.encoding import Array, Encoding, Grids
from onnxport.quantize.weights.finding import Found, Weight, find, opened
from onnxport.quantize.weights.layout import Layout
from onnxport.quantize.weights.shelf import Shelf
from onnxport.quantize.weights.tables import look_up

_BITS = {"int8-weights": 8, "int4-weights": 4}
# What four bits are grouped in unless the user says otherwise; eight have a scale a row.
_BLOCK = 32
# Of a convolution's input channels at least so many share a scale; with fewer, all weights of an output channel do.
_FEWEST = 16


def quantize(model: Model, params: QuantizeParams, setting: Setting) -> Quantized:
    """Stores the weights of products, tables and recurrent layers in 8 or 4 bits.

    Raises:
        CannotConvertError: no weight of the model can be stored so.
    """
    changed = opened(model)
    found = find(changed, exclude=params.exclude)
    if not found.weights:
        raise nothing_to_do(model, found)
    plan = _Plan(params)
    shelf = Shelf(setting.folder)
    opsets = [0]
    for number, weight in enumerate(found.weights):
        setting.watch.progress(number, len(found.weights))
        opsets.append(plan.store(weight, shelf))
    ...
