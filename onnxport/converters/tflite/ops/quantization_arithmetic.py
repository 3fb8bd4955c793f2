"""Quantization computed as arithmetic: scales and zero points may be run-time values, and results are bit-exact.

quantization.py beside it decides when it is.
"""

from __future__ import annotations

import numpy as np

from onnxport.converters.tflite.broadcasting import broadcast
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.ops.casts import SMALL_FLOATS, rounded
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.values import Value, scalar

# Quantized type -> (its limits, the type that holds it: TFLite computes on no narrower one).
_QUANTIZED = {
    "int2": (-2, 1, "int8"),
    "uint2": (0, 3, "uint8"),
    "int4": (-8, 7, "int8"),
    "uint4": (0, 15, "uint8"),
    "int8": (-128, 127, "int8"),
    "uint8": (0, 255, "uint8"),
    "int16": (-(2**15), 2**15 - 1, "int16"),
    "uint16": (0, 2**16 - 1, "uint16"),
}


def quantize_linear(node: TflNode, tfl: TflBuilder) -> None:
    """saturate(round(x / scale) + zero point), ties to even (ONNX QuantizeLinear-25).

    What lies between round and saturate is exact in float32: at 2^24 every type is saturated.
    """
    node.ignore("output_dtype")  # the result's type is inferred
    name, saturate = node.output_dtype().name, bool(node.attribute("saturate", 1))
    if name not in _QUANTIZED and name not in SMALL_FLOATS:
        node.unsupported(f"quantizes to {name}, which TFLite does not hold; quantize to an integer type")
    if node.attribute("precision", 0) not in (0, 1):
        node.unsupported("divides in another precision than float32; leave out its attribute 'precision'")
    x = tfl.float32(node.x)
    scale, zero_point = _parameters(node, tfl, x)
    if name in _QUANTIZED:
        node.emit(_quantized(tfl, x, scale, zero_point, name))
        return
    if zero_point is not None and (
        zero_point.constant is None or zero_point.constant.astype(np.float32).any()
    ):
        node.unsupported(f"quantizes to {name} with a zero point other than 0")
    steps = broadcast(tfl, "div", x, _unfolded(tfl, scale))
    node.emit(rounded(tfl, steps, SMALL_FLOATS[name], saturate=saturate))


def _quantized(tfl: TflBuilder, x: Value, scale: Value, zero_point: Value | None, name: str) -> Value:
    """x, in float32, as numbers of the quantized type `name`."""
    low, high, holder = _QUANTIZED[name]
    steps = _rounded(tfl, broadcast(tfl, "div", x, _unfolded(tfl, scale)))
    if zero_point is not None:
        steps = broadcast(tfl, "add", steps, tfl.converted(zero_point, np.float32))
    return tfl.converted(_within(tfl, steps, low, high), np.dtype(holder))


def _rounded(tfl: TflBuilder, x: Value) -> Value:
    order = x.order
    tensor = tfl.tensor(x, order)
    return tfl.computed(tfl.op("round", [tensor], tfl.shape_of(tensor)), order)


def _within(tfl: TflBuilder, x: Value, low: float, high: float) -> Value:
    above = broadcast(tfl, "maximum", x, scalar(low, np.float32))
    return broadcast(tfl, "minimum", above, scalar(high, np.float32))


def _unfolded(tfl: TflBuilder, divisor: Value) -> Value:
    """A divisor in which the compiler sees no constant: it would multiply by the reciprocal, and round otherwise."""
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
    scale = broadcast(tfl, "div", span, _unfolded(tfl, scalar(255, np.float32)))
    is_flat = broadcast(tfl, "equal", scale, zero)
    scale = broadcast(tfl, "select_v2", is_flat, scalar(1, np.float32), scale)
    offset = broadcast(tfl, "sub", zero, broadcast(tfl, "div", low, scale))
    zero_point = tfl.converted(_rounded(tfl, _within(tfl, offset, 0, 255)), np.uint8)
    node.emit(_quantized(tfl, x, scale, zero_point, "uint8"), 0)
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
    """The scale, in float32, and the zero point, both in a shape that broadcasts with x."""
    axis, block = node.attribute("axis", 1), node.attribute("block_size", 0)
    scale, zero_point = tfl.float32(node.input(1)), node.optional(2)
    aligned = _along_axis(node, tfl, scale, x, axis, block)
    return aligned, None if zero_point is None else _along_axis(node, tfl, zero_point, x, axis, block)


def _along_axis(node: TflNode, tfl: TflBuilder, parameter: Value, x: Value, axis: int, block: int) -> Value:
    if parameter.rank == 0 or parameter.shape == (1,):
        return _reshaped(tfl, parameter, ())
    if not -x.rank <= axis < x.rank:
        node.unsupported(f"its axis {axis} is none of the {x.rank} axes of x")
    axis %= x.rank
    if parameter.rank == 1:
        return _reshaped(tfl, parameter, tuple(parameter.shape[0] if i == axis else 1 for i in range(x.rank)))
    if parameter.rank != x.rank or not block:
        node.unsupported(f"its scale has {parameter.rank} axes, x has {x.rank}")
    size = x.shape[axis]
    if size is None:
        node.unsupported(
            "scales blocks of an axis of open size; fix the size with --shape NAME=... if it is an input's"
        )
    return _repeated(tfl, parameter, axis, np.arange(size) // block)


def _reshaped(tfl: TflBuilder, value: Value, shape: tuple[int | None, ...]) -> Value:
    if value.constant is not None:
        constant = value.constant.reshape([dim or 0 for dim in shape])
        return Value(shape, value.dtype, constant=constant)
    return tfl.computed(tfl.reshape(tfl.tensor(value), shape))


def _repeated(
    tfl: TflBuilder, value: Value, axis: int, places: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> Value:
    shape = tuple(len(places) if i == axis else dim for i, dim in enumerate(value.shape))
    if value.constant is not None:
        return Value(shape, value.dtype, constant=value.constant.take(places, axis))
    gathered = tfl.op(
        "gather", [tfl.tensor(value), tfl.int32(places.astype(np.int32))], shape, axis=axis, batch_dims=0
    )
    return tfl.computed(gathered)
