"""QuantizeLinear and DequantizeLinear as TFLite's own quantized tensors, where their parameters are constants."""

from __future__ import annotations

import numpy as np

from onnxport.converters import quantized_constants
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.layout import normalize_axis
from onnxport.converters.tflite.ops import quantization_arithmetic as arithmetic
from onnxport.converters.tflite.quantized.quantization import (
    Quantization,
    QuantizedConstant,
    quantization_of,
    to_storage,
)
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.values import Value
from onnxport.core.arrays import Array

# Integers of 4 bits, which NumPy does not count as integers.
_NARROW = ("int4", "uint4")


@lower("QuantizeLinear")
def quantize_linear(node: TflNode, tfl: TflBuilder) -> None:
    """saturate(round(x / scale) + zero point) (ONNX QuantizeLinear-25), a grid where DequantizeLinear follows."""
    # A quantized tensor of TFLite has 8 bits, in which numbers of 4 would not saturate.
    is_narrow = node.output_dtype().name in _NARROW
    grid = None if is_narrow else _grid(node, node.output_dtype().name)
    if grid is not None and grid.axis is None and node.x.constant is None and _is_dequantized(node):
        node.ignore(
            "axis", "block_size", "saturate", "precision", "output_dtype"
        )  # of no meaning for one scale
        order = tfl.common_order(node.x)
        tensor = tfl.tensor(tfl.float32(node.x), order)
        rounded = tfl.quantized.round_to(tensor, grid)
        node.emit(Value(node.x.shape, node.output_dtype(), dequantized=tfl.computed(rounded, order)))
        return
    if (numbers := _quantize_constant(node)) is not None:
        node.emit(Value(numbers.shape, numbers.dtype, constant=numbers))
        return
    arithmetic.quantize_linear(node, tfl)


@lower("DequantizeLinear")
def dequantize_linear(node: TflNode, tfl: TflBuilder) -> None:
    """(x - zero point) * scale (ONNX DequantizeLinear-25)."""
    x = node.x
    if x.dequantized is not None:
        node.rest()  # the parameters are those of the QuantizeLinear
        node.ignore("axis", "block_size", "output_dtype")
        node.emit(x.dequantized)
        return
    if (floats := _dequantize_constant(node)) is not None:
        node.emit(floats)
        return
    arithmetic.dequantize_linear(node, tfl)


def _grid(node: TflNode, dtype: str) -> Quantization | None:
    """The node's parameters in TFLite's form; None if it has none for them, or they are computed at run time."""
    scale, zero_point = node.input(1).constant, node.optional(2)
    if scale is None or (zero_point is not None and zero_point.constant is None):
        return None
    axis = normalize_axis(node.attribute("axis", 1), node.x.rank) if scale.size > 1 else None
    points = None if zero_point is None else zero_point.constant
    return quantization_of(dtype, scale, points, axis)


def _is_dequantized(node: TflNode) -> bool:
    """Return whether only DequantizeLinear nodes with the same parameters read the result."""
    result = node.node.outputs[0]
    parameters = [_numbers(value) for value in node.node.inputs[1:3]]
    return not result.is_graph_output() and all(
        user.op_type == "DequantizeLinear"
        and index == 0
        and all(
            own is not None and (given := _numbers(other)) is not None and np.array_equal(own, given)
            for own, other in zip(parameters, user.inputs[1:3], strict=False)
        )
        for user, index in result.uses()
    )


def _numbers(value: object) -> Array | None:
    tensor = getattr(value, "const_value", None)
    return None if tensor is None else tensor.numpy()


# ---- constants


def _quantize_constant(node: TflNode) -> Array | None:
    """Quantize a constant; None if the node is not constant throughout."""
    x, scale, zero_point = _constants(node)
    dtype = node.output_dtype()
    if x is None or scale is None or (dtype.kind not in "iu" and dtype.name not in _NARROW):
        return None
    node.ignore("saturate", "precision", "output_dtype")
    return quantized_constants.quantize(x, scale, zero_point, dtype)


def _dequantize_constant(node: TflNode) -> Value | None:
    """Dequantize a constant, which the file stores in integers if TFLite can; None if it is not constant."""
    x, scale, zero_point = _constants(node)
    if x is None or scale is None:
        return None
    node.ignore("output_dtype")  # the result's type is inferred
    floats = quantized_constants.dequantize(x, scale, zero_point, node.output_dtype())
    grid = _grid(node, x.dtype.name)
    kept = None if grid is None else QuantizedConstant(to_storage(x), grid)
    return Value(floats.shape, floats.dtype, constant=floats, quantized=kept)


def _constants(node: TflNode) -> tuple[Array | None, Array | None, Array | None]:
    """Return x, scale and zero point, the latter two in shapes that broadcast with x; None if not constant."""
    x, scale, zero_point = node.x.constant, node.input(1).constant, node.optional(2)
    axis, block = node.attribute("axis", 1), node.attribute("block_size", 0)
    if x is None or scale is None or (zero_point is not None and zero_point.constant is None):
        return None, None, None
    points = None if zero_point is None else _along_axis(zero_point.constant, x, axis, block)
    return x, _along_axis(scale, x, axis, block), points


def _along_axis(parameter: Array | None, x: Array, axis: int, block: int) -> Array:
    assert parameter is not None
    if parameter.size == 1:
        return parameter.reshape(())
    axis = normalize_axis(axis, x.ndim)
    if parameter.ndim == 1:
        return parameter.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    return parameter.repeat(block, axis).take(np.arange(x.shape[axis]), axis)
