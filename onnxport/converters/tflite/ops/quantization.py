"""Quantization: TFLite's quantized tensors where the parameters allow, else bit-exact arithmetic."""

from __future__ import annotations

import numpy as np

from onnxport.converters import quantized_constants
from onnxport.converters.quantized_constants import LIMITS
from onnxport.converters.semantics import block_numbers, scale_axis
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.layout import Shape, normalize_axis
from onnxport.converters.tflite.ops.casts import SMALL_FLOATS, round_to
from onnxport.converters.tflite.quantized.quantization import (
    Quantization,
    QuantizedConstant,
    quantization_of,
    to_storage,
)
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.values import Value, constant, scalar
from onnxport.core.arrays import Array

# Integers of 4 bits, which NumPy does not count as integers.
_NARROW = ("int4", "uint4")
# Quantized type -> the type that holds it, where TFLite computes on no narrower one.
_HOLDERS = {"int2": "int8", "uint2": "uint8", "int4": "int8", "uint4": "uint8"}


@lower("QuantizeLinear")
def quantize_linear(node: TflNode, tfl: TflBuilder) -> None:
    """saturate(round(x / scale) + zero point), ties to even (ONNX QuantizeLinear-25).

    A grid of the file's quantized tensors where DequantizeLinear follows.
    """
    dtype = node.output_dtype()
    # A quantized tensor of TFLite has 8 bits, in which numbers of 4 would not saturate.
    grid = None if dtype.name in _NARROW else _grid(node, dtype.name)
    if grid is not None and grid.axis is None and node.x.constant is None and _is_dequantized(node):
        # All of no meaning for one scale.
        node.ignore("axis", "block_size", "saturate", "precision", "output_dtype")
        order = tfl.common_order(node.x)
        rounded = tfl.quantized.round_to(tfl.tensor(tfl.float32(node.x), order), grid)
        node.emit(Value(node.x.shape, dtype, dequantized=tfl.value(rounded, order)))
    elif _is_constant(node) and (dtype.kind in "iu" or dtype.name in _NARROW):
        node.ignore("saturate", "precision", "output_dtype")
        node.emit(constant(quantized_constants.quantize(*_constants(node, tfl), dtype)))
    else:
        _quantize_by_arithmetic(node, tfl)


@lower("DequantizeLinear")
def dequantize_linear(node: TflNode, tfl: TflBuilder) -> None:
    """(x - zero point) * scale in float32, rounded once to the scale's type (ONNX DequantizeLinear-25)."""
    x = node.x
    node.ignore("output_dtype")  # the result's type is inferred
    if x.dequantized is not None:
        node.rest()  # the parameters are those of the QuantizeLinear
        node.ignore("axis", "block_size")
        node.emit(x.dequantized)
    elif _is_constant(node):
        numbers, scale, zero_point = _constants(node, tfl)
        floats = quantized_constants.dequantize(numbers, scale, zero_point, node.output_dtype())
        grid = _grid(node, x.dtype.name)
        # The file stores the integers if TFLite can.
        node.emit(constant(floats, None if grid is None else QuantizedConstant(to_storage(numbers), grid)))
    else:
        wide = np.dtype(np.int32 if x.dtype == np.int32 else np.float32)
        scale_, point = _parameters(node, tfl, tfl.float32(node.input(1)))
        steps = tfl.convert(x, wide)
        if point is not None:
            steps = tfl.broadcast("sub", steps, tfl.convert(point, wide))
        result = tfl.broadcast("mul", tfl.convert(steps, np.float32), scale_)
        node.emit(tfl.convert(result, node.output_dtype()))


def _grid(node: TflNode, dtype: str) -> Quantization | None:
    """Return the node's parameters in TFLite's form; None if it has none for them, or they are computed at run time."""
    scale, zero_point = node.input(1).constant, node.optional(2)
    if scale is None or (zero_point is not None and zero_point.constant is None):
        return None
    block: int = node.attribute("block_size", 0)
    if scale.size > 1 and block:
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


def _is_constant(node: TflNode) -> bool:
    operands = [node.x, node.input(1), node.optional(2)]
    return all(operand is None or operand.constant is not None for operand in operands)


def _constants(node: TflNode, tfl: TflBuilder) -> tuple[Array, Array, Array | None]:
    """Return constant x, and its scale and zero point in shapes that broadcast with it."""
    scale, zero_point = _parameters(node, tfl, node.input(1))
    assert node.x.constant is not None
    assert scale.constant is not None
    return node.x.constant, scale.constant, None if zero_point is None else zero_point.constant


def _parameters(node: TflNode, tfl: TflBuilder, scale: Value) -> tuple[Value, Value | None]:
    """Return the scale and the zero point, both in a shape that broadcasts with x."""
    aligned, zero_point = _align(node, tfl, scale), node.optional(2)
    return aligned, None if zero_point is None else _align(node, tfl, zero_point)


def _align(node: TflNode, tfl: TflBuilder, parameter: Value) -> Value:
    x, axis, block = node.x, node.attribute("axis", 1), node.attribute("block_size", 0)
    if parameter.rank == 0 or parameter.shape == (1,):
        return _reshape(tfl, parameter, ())
    axis = scale_axis(node, axis)
    if parameter.rank == 1 and not (block and x.rank == 1):
        return _reshape(tfl, parameter, tuple(parameter.shape[0] if i == axis else 1 for i in range(x.rank)))
    places = block_numbers(node, parameter, axis, block)
    shape = tuple(x.shape[i] if i == axis else dim for i, dim in enumerate(parameter.shape))
    if parameter.constant is not None:
        return constant(parameter.constant.take(places, axis))
    tensor = tfl.tensor(parameter)
    return tfl.value(tfl.gather(tensor, tfl.int32(places.astype(np.int32)), axis, shape))


def _reshape(tfl: TflBuilder, value: Value, shape: Shape) -> Value:
    if value.constant is not None:
        return constant(value.constant.reshape([dim or 0 for dim in shape]))
    return tfl.value(tfl.reshape(tfl.tensor(value), shape))


# ---- arithmetic, with scales and zero points that may be run-time values


def _quantize_by_arithmetic(node: TflNode, tfl: TflBuilder) -> None:
    # Numbers between round and saturate are exact in float32: every type saturates below 2^24.
    node.ignore("output_dtype")  # the result's type is inferred
    name, saturate = node.output_dtype().name, bool(node.attribute("saturate", 1))
    if name not in LIMITS and name not in SMALL_FLOATS:
        node.unsupported(f"quantizes to {name}, which TFLite does not hold; quantize to an integer type")
    if node.attribute("precision", 0) not in (0, 1):
        node.unsupported("divides in another precision than float32; leave out its attribute 'precision'")
    x = tfl.float32(node.x)
    scale, zero_point = _parameters(node, tfl, tfl.float32(node.input(1)))
    if name in LIMITS:
        node.emit(_quantize(tfl, x, scale, zero_point, name))
        return
    if zero_point is not None and (
        zero_point.constant is None or zero_point.constant.astype(np.float32).any()
    ):
        node.unsupported(f"quantizes to {name} with a zero point other than 0")
    steps = tfl.broadcast("div", x, _hide_constant(tfl, scale))
    node.emit(round_to(tfl, steps, SMALL_FLOATS[name], saturate=saturate))


def _quantize(tfl: TflBuilder, x: Value, scale: Value, zero_point: Value | None, name: str) -> Value:
    """Quantize float32 to the integer type `name`."""
    steps = tfl.apply("round", tfl.broadcast("div", x, _hide_constant(tfl, scale)))
    if zero_point is not None:
        steps = tfl.broadcast("add", steps, tfl.convert(zero_point, np.float32))
    return tfl.convert(_clamp(tfl, steps, *LIMITS[name]), np.dtype(_HOLDERS.get(name, name)))


def _clamp(tfl: TflBuilder, x: Value, low: float, high: float) -> Value:
    return tfl.broadcast("minimum", tfl.broadcast("maximum", x, low), high)


def _hide_constant(tfl: TflBuilder, divisor: Value) -> Value:
    """Hide a constant divisor from the compiler, which would multiply by its reciprocal and round otherwise."""
    if divisor.constant is None:
        return divisor
    return tfl.value(tfl.bitcast(tfl.constant(divisor.constant.view(np.int32)), np.float32))


@lower("DynamicQuantizeLinear")
def dynamic_quantize_linear(node: TflNode, tfl: TflBuilder) -> None:
    """uint8 over the range of x and 0; the scale is 1 where x is 0 throughout (ONNX DynamicQuantizeLinear-11)."""
    x = node.x
    operands = [tfl.tensor(x, x.order), tfl.int32(list(range(x.rank)))]
    lowest, largest = (
        tfl.value(tfl.op(f"reduce_{each}", operands, (), keep_dims=False)) for each in ("min", "max")
    )
    low, high = tfl.broadcast("minimum", lowest, 0), tfl.broadcast("maximum", largest, 0)
    span = tfl.broadcast("sub", high, low)
    scale = tfl.broadcast("div", span, _hide_constant(tfl, scalar(255, np.float32)))
    is_flat = tfl.broadcast("equal", scale, 0)
    scale = tfl.broadcast("select_v2", is_flat, 1, scale)
    offset = tfl.broadcast("sub", 0, tfl.broadcast("div", low, scale))
    zero_point = tfl.convert(tfl.apply("round", _clamp(tfl, offset, 0, 255)), np.uint8)
    node.emit(_quantize(tfl, x, scale, zero_point, "uint8"), 0)
    node.emit(scale, 1)
    node.emit(zero_point, 2)
