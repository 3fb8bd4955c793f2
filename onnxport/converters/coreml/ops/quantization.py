"""QuantizeLinear and DequantizeLinear: MIL's own for 8 bits, else arithmetic; quantized weights stay quantized."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxport.converters import quantized_constants
from onnxport.converters.coreml.builder import MilBuilder, MilNode, MilType
from onnxport.converters.coreml.quantized import Grid, holds_scale
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.values import Value
from onnxport.converters.quantized_constants import LIMITS
from onnxport.converters.semantics import block_numbers, scale_axis
from onnxport.core.arrays import Array

# Types of MIL's quantize and dequantize.
_BYTES: dict[str, MilType] = {"int8": "int8", "uint8": "uint8"}


@lower("QuantizeLinear")
def quantize_linear(node: MilNode, mil: MilBuilder) -> None:
    """saturate(round(x / scale) + zero point), ties to even (ONNX QuantizeLinear-25).

    Numbers between round and saturate are exact in float32: every type saturates below 2^24.
    """
    node.ignore("output_dtype", "saturate")  # the result's type is inferred; floats of 8 bits are refused
    name = node.output_dtype().name
    if name not in LIMITS:
        node.unsupported(f"quantizes to {name}, and Core ML has no such type; quantize to an integer type")
    if node.attribute("precision", 0) not in (0, 1):
        node.unsupported("divides in another precision than float32; leave out its attribute 'precision'")
    parameters = _Parameters(node, mil)
    x, scale, points = node.x, parameters.scale, parameters.zero_point
    if x.constant is not None and parameters.are_constant:
        numbers = quantized_constants.quantize(x.constant, *parameters.constants, node.output_dtype())
        node.emit(mil.constant(numbers))
    elif name in _BYTES and parameters.are_known and mil.at_least("iOS17") and x.rank:
        floats = x if x.is_float else mil.cast(x=x, dtype="fp32")
        operands = parameters.operands(mil, _BYTES[name])
        node.emit(mil.quantize(input=floats, output_dtype=_BYTES[name], **operands))
    else:
        mil.compute = "fp32"
        steps = mil.round(x=mil.real_div(x=_floats(mil, x), y=scale))
        if points is not None:
            steps = mil.add(x=steps, y=_floats(mil, points))
        low, high = LIMITS[name]
        node.emit(mil.cast(x=mil.clip(x=steps, alpha=float(low), beta=float(high)), dtype="int32"))


@lower("DequantizeLinear")
def dequantize_linear(node: MilNode, mil: MilBuilder) -> None:
    """(x - zero point) * scale (ONNX DequantizeLinear-25)."""
    node.ignore("output_dtype")  # the result's type is inferred
    parameters = _Parameters(node, mil)
    x, scale, points = node.x, parameters.scale, parameters.zero_point
    if x.dtype.name not in (*LIMITS, "int32"):
        node.unsupported(f"holds {x.dtype.name}, which Core ML does not; quantize to an integer type")
    if x.constant is not None and parameters.are_constant:
        floats = quantized_constants.dequantize(x.constant, *parameters.constants, node.output_dtype())
        grid = _grid(x.constant, parameters)
        node.emit(Value(floats.shape, floats.dtype, constant=floats, quantized=grid))
        return
    if (kept := x.copies.get(x.dtype.name)) is not None and parameters.are_known:
        operands = parameters.operands(mil, _BYTES[x.dtype.name])
        node.emit(mil.dequantize(input=kept, **operands))
        return
    mil.compute = "fp32"
    steps = x if points is None else mil.sub(x=x, y=points)
    node.emit(mil.mul(x=_floats(mil, steps), y=scale))


class _Parameters:
    """A node's scale and zero point, in shapes that broadcast with x."""

    def __init__(self, node: MilNode, mil: MilBuilder) -> None:
        self.node, self.mil, self.x = node, mil, node.x
        self.axis, self.block = node.attribute("axis", 1), node.attribute("block_size", 0)
        scale, zero_point = node.input(1), node.optional(2)
        self.is_single = _is_single(scale)
        self.is_blocked = scale.rank > 1 or (bool(self.block) and self.x.rank == 1 and not self.is_single)
        self.axis = self.axis % max(1, self.x.rank) if self.is_single else scale_axis(node, self.axis)
        self.given = scale, zero_point
        if scale.constant is not None:
            scale = mil.constant(scale.constant.astype(np.float32))
        self.scale = self._align(scale)
        self.zero_point = None if zero_point is None else self._align(zero_point)

    @property
    def are_constant(self) -> bool:
        return all(each is None or each.constant is not None for each in self.given)

    @property
    def are_known(self) -> bool:
        """True if MIL's own operators take them: constants, one or one for each index of an axis."""
        scale = self.given[0].constant
        return self.are_constant and scale is not None and bool(scale.all()) and not self.is_blocked

    @property
    def constants(self) -> tuple[Array, Array | None]:
        """Scale and zero point of a node whose parameters are constant."""
        assert self.scale.constant is not None
        return self.scale.constant, None if self.zero_point is None else self.zero_point.constant

    def operands(self, mil: MilBuilder, type_: MilType) -> dict[str, Any]:
        """Return the parameters of MIL's quantize and dequantize, and set the type in which these compute."""
        scale, zero_point = (None if each is None else each.constant for each in self.given)
        assert scale is not None
        if mil.compute == "fp16" and not holds_scale(scale):
            mil.compute = "fp32"
        shape = () if self.is_single else (-1,)
        held = scale.astype(np.float16 if mil.compute == "fp16" else np.float32).reshape(shape)
        operands = {"scale": held[()], "axis": None if self.is_single else self.axis}
        if zero_point is not None and zero_point.any():
            points = np.broadcast_to(zero_point.reshape(-1), (scale.size,)).astype(type_).reshape(shape)
            operands["zero_point"] = mil.raw(points)
        return operands

    def _align(self, parameter: Value) -> Value:
        x, axis = self.x, self.axis
        if _is_single(parameter):
            return _reshape(self.mil, parameter, ())
        if parameter.rank == 1 and not self.is_blocked:
            size = parameter.shape[0]
            if size is None:
                self.node.unsupported("has as many scales as an open size; fix it with --shape NAME=...")
            return _reshape(self.mil, parameter, tuple(size if i == axis else 1 for i in range(x.rank)))
        places = block_numbers(self.node, parameter, axis, self.block)
        if parameter.constant is not None:
            return self.mil.constant(parameter.constant.take(places, axis))
        taken = self.mil.gather(x=parameter, indices=places.astype(np.int32), axis=axis)
        taken.dtype = parameter.dtype
        return taken


def _is_single(parameter: Value) -> bool:
    return parameter.rank == 0 or parameter.shape == (1,)


def _reshape(mil: MilBuilder, value: Value, shape: tuple[int, ...]) -> Value:
    if value.constant is not None:
        return mil.constant(value.constant.reshape(shape))
    if value.shape == shape:
        return value
    made = mil.reshape(x=value, shape=list(shape)) if shape else mil.squeeze(x=value, axes=[0])
    made.dtype = value.dtype
    return made


def _floats(mil: MilBuilder, value: Value) -> Value:
    if value.constant is not None:
        return mil.constant(value.constant.astype(np.float32))
    return value if value.is_float else mil.cast(x=value, dtype="fp32")


def _grid(x: Array, parameters: _Parameters) -> Grid | None:
    """Return what a constant is dequantized from; the package stores that if MIL can."""
    if x.dtype.name not in LIMITS or not x.ndim:
        return None
    scale, points = (None if each is None else each.constant for each in parameters.given)
    assert scale is not None
    if parameters.is_blocked:
        axis, block = parameters.axis, parameters.block
        # MIL has blocks of one size, ONNX a shorter last one.
        size = math.gcd(block, x.shape[axis])
        if size == 1 < block:
            return None
        places = np.arange(0, x.shape[axis], size) // block
        points = None if points is None else points.take(places, axis)
        return Grid(x, x.dtype.name, scale.astype(np.float32).take(places, axis), points)
    shape = [1] * x.ndim
    if not parameters.is_single:
        shape[parameters.axis] = scale.size
    if points is not None:
        points = np.broadcast_to(points.reshape(-1), (scale.size,)).reshape(shape)
    return Grid(x, x.dtype.name, scale.astype(np.float32).reshape(shape), points)
