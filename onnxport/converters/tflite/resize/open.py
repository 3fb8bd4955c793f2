"""Resize where sizes, scales or the region of interest are known at run time only."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TypeAlias

import numpy as np

from onnxport.converters.resize.open import OpenAxis, OpenResize, is_by_ratio, is_repetition
from onnxport.converters.resize.sampling import HALFWAY, REACH, Sampling, refuse_rounding
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.formulas import Elements
from onnxport.converters.tflite.layout import axis_last, channels_last, identity
from onnxport.converters.tflite.ops.matmul import batch_matmul
from onnxport.converters.tflite.resize.native import Native, gather_axis, resize_natively
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value

# ONNX coordinate_transformation_mode -> TFLite's (align_corners, half_pixel_centers) that samples linearly
# the same at any size, if the scale is the ratio of the sizes.
_LINEAR_AT_ANY_SIZE: dict[str, Native] = {
    "align_corners": (True, False),
    "asymmetric": (False, False),
    "half_pixel": (False, True),
}

# Sizes are int32 [1].
_Axis: TypeAlias = OpenAxis[Tensor, Elements]


def resize_at_run_time(node: TflNode, tfl: TflBuilder, sampling: Sampling) -> Value:
    """Resize axes to sizes that follow from the input's, or are computed, at run time."""
    x, shape = node.x, node.output_shape()
    resize = _Resize(node, tfl, sampling)
    axes = resize.axes()
    native = _native_at_any_size(sampling, axes)
    if native is not None and x.rank == 4 and x.dtype.kind == "f" and [each.axis for each in axes] == [2, 3]:
        sizes = tfl.concatenate([each.after for each in axes])
        return resize_natively(tfl, x, sampling.mode, native, sizes, shape)
    if sampling.mode != "nearest" and x.dtype.kind != "f":
        refuse_rounding(node, sampling)
    outside = []
    for each in axes:
        positions = _positions(resize, each)
        if sampling.mode == "nearest":
            x = gather_axis(tfl, x, each.axis, _indices(tfl, _round(positions, sampling.rounding), each))
        elif sampling.mode == "linear" and not sampling.antialias:
            x = _interpolate(tfl, x, each, positions)
        else:
            x = _apply_weights(resize, x, each, positions)
        if each.region is not None:
            outside.append(_is_outside(resize, each, positions, x.rank))
    for condition in outside:
        x = tfl.broadcast("select_v2", condition, sampling.extrapolation, x)
    return x


class _Resize(OpenResize[Value, Tensor, Elements]):
    def __init__(self, node: TflNode, tfl: TflBuilder, sampling: Sampling) -> None:
        super().__init__(node, sampling)
        self.tfl = tfl
        self.paired = frozenset((2, 3)) if node.x.rank == 4 else frozenset()

    @cached_property
    def before(self) -> dict[int, Tensor]:
        x = self.node.x
        order = channels_last(4) if x.rank == 4 else identity(x.rank)
        tensor = self.tfl.tensor(x, order)
        return {axis: self.tfl.size(tensor, order.index(axis)) for axis in self.targets}

    def sizes(self, value: Value) -> list[Tensor]:
        tensor = self.tfl.tensor(self.tfl.convert(value, np.int32))
        return [self.tfl.slice(tensor, [place], [1]) for place in range(len(self.targets))]

    def floats(self, value: Value, count: int) -> list[Elements]:
        tensor = self.tfl.tensor(self.tfl.float32(value))
        return [Elements(self.tfl, self.tfl.slice(tensor, [place], [1])) for place in range(count)]

    def number(self, size: Tensor) -> Elements:
        return Elements(self.tfl, self.tfl.cast(size, np.float32))

    def as_size(self, number: Elements) -> Tensor:
        return self.tfl.cast(number.tensor, np.int32)

    def multiple(self, size: Tensor, factor: int) -> Tensor:
        return self.tfl.op("mul", [size, self.tfl.int32([factor])], [1])

    def element(self, number: float | Elements) -> Elements:
        if isinstance(number, Elements):
            return number
        return Elements(self.tfl, self.tfl.constant(np.array([number], np.float32)))

    def whole_axis(self) -> Iterator[Elements]:
        return (self.element(number) for number in (0.0, 1.0))


def _native_at_any_size(sampling: Sampling, axes: list[_Axis]) -> Native | None:
    """Return the TFLite op's parameters that sample the same whatever the size."""
    if sampling.mode == "cubic" or sampling.antialias:
        return None
    if sampling.mode == "nearest":
        return (False, False) if is_repetition(sampling, axes) else None
    return _LINEAR_AT_ANY_SIZE.get(sampling.coordinates) if is_by_ratio(sampling, axes) else None


# ---- sampling by positions, in the order of operations of sampling.source_positions


def _positions(resize: _Resize, axis: _Axis) -> Elements:
    """Return the position in the input of every output element, float32 [after]."""
    tfl = resize.tfl
    count = tfl.reshape(axis.after, ())
    indices = tfl.op("range", [tfl.constant(0, np.int32), count, tfl.constant(1, np.int32)], [None], np.int32)
    y = Elements(tfl, tfl.cast(indices, np.float32))
    before, after = resize.number(axis.before), resize.number(axis.after)
    # The compiler turns division by a constant into multiplication, which rounds otherwise: neither divisor is one.
    one = before.minimum(1.0)
    scale = after / before if axis.scale is None else one * axis.scale
    if axis.region is not None:
        return _region_positions(y, before, after, *axis.region)
    match resize.sampling.coordinates:
        case "asymmetric":
            return y / scale
        case "align_corners":
            # y * (before - 1), without a factor that may be folded to 0 (see TensorBuilder._emit).
            return (y * before - y) / ((after - 1.0).maximum(1.0) * one)
        case "pytorch_half_pixel":
            # For a result of one element the position is 0; multiplying by 0 would be folded away.
            bound = (after - 1.0).minimum(1.0) * 3e38
            return ((y + 0.5) / scale - 0.5).maximum(-bound).minimum(bound)
        case "half_pixel_symmetric":
            adjustment = after / (before * scale)
            return before * 0.5 * (-adjustment + 1.0) + ((y + 0.5) / scale - 0.5)
        case _:
            return (y + 0.5) / scale - 0.5


def _region_positions(
    y: Elements, before: Elements, after: Elements, start: Elements, end: Elements
) -> Elements:
    """Return tf_crop_and_resize's positions: from the region's start to its end; its centre for one element."""
    last = before - 1.0
    steps = (after - 1.0).maximum(1.0)
    # y * (before - 1), without a factor that may be folded to 0 (see TensorBuilder._emit).
    spread = (y * before - y) * (end - start) / steps + last * start
    centre = y + last * ((start + end) * 0.5)
    return after.where_at_least(1.5, spread, centre)


def _round(positions: Elements, rounding: str) -> Elements:
    match rounding:
        case "floor" | "ceil":
            return positions.call(rounding)
        case _:
            lower = positions.call("floor")
            past_half = positions - lower - 0.5
            bound = -float(HALFWAY) if rounding == "round_prefer_ceil" else float(HALFWAY)
            return past_half.where_at_least(bound, lower + 1.0, lower)


def _indices(tfl: TflBuilder, positions: Elements, axis: _Axis) -> Tensor:
    """Return whole positions as indices, clamped to the axis."""
    whole = tfl.cast(positions.tensor, np.int32)
    last = tfl.op("sub", [axis.before, tfl.int32(1)], [1])
    above = tfl.op("maximum", [whole, tfl.int32(0)], [None])
    return tfl.op("minimum", [above, last], [None])


def _interpolate(tfl: TflBuilder, x: Value, axis: _Axis, positions: Elements) -> Value:
    """Interpolate each output element between its two neighbours."""
    lower = positions.call("floor")
    share = tfl.reshape((positions - lower).tensor, [None if a == axis.axis else 1 for a in range(x.rank)])
    near, far = (gather_axis(tfl, x, axis.axis, _indices(tfl, each, axis)) for each in (lower, lower + 1.0))
    step = tfl.broadcast("mul", tfl.broadcast("sub", far, near), tfl.convert(tfl.value(share), x.dtype))
    return tfl.broadcast("add", near, step)


def _is_outside(resize: _Resize, axis: _Axis, positions: Elements, rank: int) -> Value:
    """Return the samples outside the input, as a condition that broadcasts along the axis."""
    tfl, last = resize.tfl, resize.number(axis.before) - 1.0
    low = tfl.op("less", [positions.tensor, tfl.constant(0, np.float32)], [None], bool)
    high = tfl.op("greater", [positions.tensor, last.tensor], [None], bool)
    either = tfl.op("logical_or", [low, high], [None])
    return tfl.value(tfl.reshape(either, [None if a == axis.axis else 1 for a in range(rank)]))


# ---- sampling by the weights of sampling.weight_matrix


def _apply_weights(resize: _Resize, x: Value, axis: _Axis, positions: Elements) -> Value:
    """Multiply the axis, with its edge elements repeated as far as the weights reach, by a matrix of weights."""
    tfl, sampling = resize.tfl, resize.sampling
    stretch = _stretch(resize, axis)
    reach = (stretch.call("rsqrt") * stretch.call("rsqrt") * REACH[sampling.mode]).call("ceil") + 1.0
    count = tfl.cast(reach.tensor, np.int32)
    limits = tfl.op("neg", [count], [1]), tfl.op("add", [axis.before, count], [1])
    bounds = [tfl.reshape(limit, ()) for limit in limits]
    whole = Elements(tfl, tfl.cast(tfl.op("range", [*bounds, tfl.int32(1)], [None], np.int32), np.float32))
    matrix = _weights(resize, whole, positions, stretch, axis)
    repeated = gather_axis(tfl, x, axis.axis, _indices(tfl, whole, axis))
    order = axis_last(x.rank, axis.axis)
    rows = tfl.value(tfl.tensor(tfl.float32(repeated), order))
    result = batch_matmul(tfl, rows, tfl.value(matrix))
    return tfl.convert(tfl.value(result, order), x.dtype)


def _stretch(resize: _Resize, axis: _Axis) -> Elements:
    """Return the factor of the distances: with antialias, the scale where it shrinks."""
    before = resize.number(axis.before)
    if not resize.sampling.antialias:
        return before.minimum(1.0)
    scale = resize.number(axis.after) / before if axis.scale is None else before.minimum(1.0) * axis.scale
    return scale.minimum(1.0)


def _weights(resize: _Resize, whole: Elements, positions: Elements, stretch: Elements, axis: _Axis) -> Tensor:
    """Return [reached elements, after]; each column adds up to 1."""
    tfl = resize.tfl
    rows = Elements(tfl, tfl.reshape(whole.tensor, [None, 1]))
    shares = resize.shares(rows, positions, stretch, axis)
    width = tfl.shape_of(shares.tensor)[1]
    total = tfl.op("sum", [shares.tensor, tfl.int32([0])], [1, width], keep_dims=True)
    return (shares / Elements(tfl, total)).tensor
