"""Quantization as bit-exact arithmetic, with scales and zero points that may be run-time values.

quantization.py decides when to use it.
"""

from __future__ import annotations

import numpy as np

from onnxport.converters.quantized_constants import LIMITS
from onnxport.converters.semantics import block_numbers, scale_axis
from onnxport.converters.tflite.broadcasting import broadcast
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.ops.casts import SMALL_FLOATS, round_to
from onnxport.converters.tflite.ops.elementwise import unary
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.values import Value, scalar

# Quantized type -> the type that holds it, where TFLite computes on no narrower one.
_HOLDERS = {"int2": "int8", "uint2": "uint8", "int4": "int8", "uint4": "uint8"}


def quantize_linear(node: TflNode, tfl: TflBuilder) -> None:
    """saturate(round(x / scale) + zero point), ties to even (ONNX QuantizeLinear-25).

    Numbers between round and saturate are exact in float32: every type saturates below 2^24.
    """
    node.ignore("output_dtype")  # the result's type is inferred
    name, saturate = node.output_dtype().name, bool(node.attribute("saturate", 1))
    if name not in LIMITS and name not in SMALL_FLOATS:
        node.unsupported(f"quantizes to {name}, which TFLite does not hold; quantize to an integer type")
    if node.attribute("precision", 0) not in (0, 1):
        node.unsupported("divides in another precision than float32; leave out its attribute 'precision'")
    x = tfl.float32(node.x)
    scale, zero_point = _parameters(node, tfl, x)
    if name in LIMITS:
        node.emit(_quantize(tfl, x, scale, zero_point, name))
        return
    if zero_point is not None and (
        zero_point.constant is None or zero_point.constant.astype(np.float32).any()
    ):
        node.unsupported(f"quantizes to {name} with a zero point other than 0")
    steps = broadcast(tfl, "div", x, _hide_constant(tfl, scale))
    node.emit(round_to(tfl, steps, SMALL_FLOATS[name], saturate=saturate))


def _quantize(tfl: TflBuilder, x: Value, scale: Value, zero_point: Value | None, name: str) -> Value:
    """Quantize float32 to the integer type `name`."""
    steps = unary(tfl, "round", broadcast(tfl, "div", x, _hide_constant(tfl, scale)))
    if zero_point is not None:
        steps = broadcast(tfl, "add", steps, tfl.converted(zero_point, np.float32))
    return tfl.converted(_clamp(tfl, steps, *LIMITS[name]), np.dtype(_HOLDERS.get(name, name)))


def _clamp(tfl: TflBuilder, x: Value, low: float, high: float) -> Value:
    above = broadcast(tfl, "maximum", x, scalar(low, np.float32))
    return broadcast(tfl, "minimum", above, scalar(high, np.float32))


def _hide_constant(tfl: TflBuilder, divisor: Value) -> Value:
    """Hide a constant divisor from the compiler, which would multiply by its reciprocal and round otherwise."""
    if divisor.constant is None:
        return divisor
    return tfl.computed(tfl.bitcast(tfl.constant(divisor.constant.view(np.int32)), np.float32))


@lower("DynamicQuantizeLinear")
def dynamic_quantize_linear(node: TflNode, tfl: TflBuilder) -> None:
    """uint8 over the range of x and 0; the scale is 1 where x is 0 throughout (ONNX DynamicQuantizeLinear-11)."""
    x, zero = node.x, scalar(0, np.float32)
    tensor = tfl.tensor(x, x.order)
    axes = tfl.int32(list(range(x.rank)))
    low, high = (
        tfl.computed(tfl.op(f"reduce_{each}", [tensor, axes], (), keep_dims=False)) for each in ("min", "max")
    )
    low, high = broadcast(tfl, "minimum", low, zero), broadcast(tfl, "maximum", high, zero)
    span = broadcast(tfl, "sub", high, low)
    scale = broadcast(tfl, "div", span, _hide_constant(tfl, scalar(255, np.float32)))
    is_flat = broadcast(tfl, "equal", scale, zero)
    scale = broadcast(tfl, "select_v2", is_flat, scalar(1, np.float32), scale)
    offset = broadcast(tfl, "sub", zero, broadcast(tfl, "div", low, scale))
    zero_point = tfl.converted(unary(tfl, "round", _clamp(tfl, offset, 0, 255)), np.uint8)
    node.emit(_quantize(tfl, x, scale, zero_point, "uint8"), 0)
    node.emit(scale, 1)
    node.emit(zero_point, 2)


def dequantize_linear(node: TflNode, tfl: TflBuilder) -> None:
    """(x - zero point) * scale in float32, rounded once to the scale's type (ONNX DequantizeLinear-25)."""
    node.ignore("output_dtype")  # the result's type is inferred
    x, wide = node.x, np.dtype(np.int32 if node.x.dtype == np.int32 else np.float32)
    scale, zero_point = _parameters(node, tfl, x)
    steps = tfl.converted(x, wide)
    if zero_point is not None:
        steps = broadcast(tfl, "sub", steps, tfl.converted(zero_point, wide))
    result = broadcast(tfl, "mul", tfl.converted(steps, np.float32), scale)
    node.emit(tfl.converted(result, node.output_dtype()))


def _parameters(node: TflNode, tfl: TflBuilder, x: Value) -> tuple[Value, Value | None]:
    """Return the scale, in float32, and the zero point, both in a shape that broadcasts with x."""
    axis, block = node.attribute("axis", 1), node.attribute("block_size", 0)
    scale, zero_point = tfl.float32(node.input(1)), node.optional(2)
    aligned = _align(node, tfl, scale, x, axis, block)
    return aligned, None if zero_point is None else _align(node, tfl, zero_point, x, axis, block)


def _align(node: TflNode, tfl: TflBuilder, parameter: Value, x: Value, axis: int, block: int) -> Value:
    if parameter.rank == 0 or parameter.shape == (1,):
        return _reshape(tfl, parameter, ())
    axis = scale_axis(node, axis)
    if parameter.rank == 1:
        return _reshape(tfl, parameter, tuple(parameter.shape[0] if i == axis else 1 for i in range(x.rank)))
    places = block_numbers(node, parameter, axis, block)
    shape = tuple(x.shape[i] if i == axis else dim for i, dim in enumerate(parameter.shape))
    if parameter.constant is not None:
        return Value(shape, parameter.dtype, constant=parameter.constant.take(places, axis))
    operands = [tfl.tensor(parameter), tfl.int32(places.astype(np.int32))]
    return tfl.computed(tfl.op("gather", operands, shape, axis=axis, batch_dims=0))


def _reshape(tfl: TflBuilder, value: Value, shape: tuple[int | None, ...]) -> Value:
    if value.constant is not None:
        constant = value.constant.reshape([dim or 0 for dim in shape])
        return Value(shape, value.dtype, constant=constant)
    return tfl.computed(tfl.reshape(tfl.tensor(value), shape))
