"""Resize where sizes, scales or the region of interest are known at run time only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from onnxport.converters.resize.open import (
    OpenAxis,
    common_scale,
    goes_by_ratio,
    inside,
    repeats_at_any_size,
    stays,
    weights,
)
from onnxport.converters.resize.sampling import HALFWAY, REACH, Sampling
from onnxport.converters.tflite.broadcasting import broadcast
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.elements import Elements
from onnxport.converters.tflite.layout import axis_last, channels_last, normalized
from onnxport.converters.tflite.ops.matmul import batch_matmul
from onnxport.converters.tflite.resize.fixed import gathered, native_resize
from onnxport.converters.tflite.resize.native import Native
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value, scalar

# ONNX coordinate_transformation_mode -> TFLite's (align_corners, half_pixel_centers) that samples linearly
# the same at any size, if the scale is the ratio of the sizes.
_LINEAR_AT_ANY_SIZE: dict[str, Native] = {
    "align_corners": (True, False),
    "asymmetric": (False, False),
    "half_pixel": (False, True),
}


# Sizes are int32 [1].
_Axis: TypeAlias = OpenAxis[Tensor, Elements]
# Start and end of a region of interest, as shares of the axis: numbers or float32 [1].
Region = tuple["float | Elements", "float | Elements"]


def resized_at_run_time(node: TflNode, tfl: TflBuilder, sampling: Sampling) -> Value:
    """Resizes axes to sizes that follow from the input's, or are computed, at run time."""
    x, shape = node.x, node.output_shape()
    axes = _open_axes(node, tfl, sampling)
    native = _native_at_any_size(sampling, axes)
    if native is not None and x.rank == 4 and x.dtype.kind == "f" and [each.axis for each in axes] == [2, 3]:
        sizes = tfl.op("concatenation", [each.after for each in axes], [2], axis=0)
        return native_resize(tfl, x, sampling.mode, native, sizes, shape)
    if sampling.mode != "nearest" and x.dtype.kind != "f":
        node.unsupported(f"{sampling.mode} sampling of {x.dtype} elements, whose rounding ONNX leaves open")
    outside = []
    for each in axes:
        positions = _positions(tfl, sampling, each)
        if sampling.mode == "nearest":
            x = gathered(tfl, x, each.axis, _indices(tfl, _rounded(positions, sampling.rounding), each))
        elif sampling.mode == "linear" and not sampling.antialias:
            x = _interpolated(tfl, x, each, positions)
        else:
            x = _weighted(tfl, x, each, positions, sampling)
        if each.region is not None:
            outside.append(_outside(tfl, each, positions, x.rank))
    fill = scalar(sampling.extrapolation, x.dtype)
    for condition in outside:
        x = broadcast(tfl, "select_v2", condition, fill, x)
    return x


# ---- the axes


def _open_axes(node: TflNode, tfl: TflBuilder, sampling: Sampling) -> list[_Axis]:
    """The axes that change, by number; images keep both spatial ones, so that one op resizes them."""
    x = node.x
    targets = [normalized(axis, x.rank) for axis in node.attribute("axes", range(x.rank))]
    policy = node.attribute("keep_aspect_ratio_policy", "stretch")
    spatial = {2, 3} if x.rank == 4 else set()
    regions = _regions(node, tfl, sampling, len(targets))
    tensor = tfl.tensor(x, channels_last(4) if x.rank == 4 else None)
    places = {axis: (channels_last(4).index(axis) if x.rank == 4 else axis) for axis in targets}
    before = {axis: tfl.size(tensor, places[axis]) for axis in targets}
    scales = node.optional(2)
    after: dict[int, Tensor] = {}
    factors: dict[int, float | Elements | None] = dict.fromkeys(targets)
    if scales is not None and scales.shape != (0,):
        node.optional(3)
        factors = dict(zip(targets, _numbers(tfl, scales, len(targets)), strict=True))
        after = {axis: _scaled(tfl, before[axis], factors[axis]) for axis in targets}
        changing = [axis for axis in targets if factors[axis] != 1 or axis in spatial]
    else:
        sizes = tfl.tensor(tfl.converted(node.input(3), np.int32))
        after = {axis: tfl.slice(sizes, [place], [1]) for place, axis in enumerate(targets)}
        changing = [axis for axis in targets if axis in spatial or not stays(node, axis)]
        if policy != "stretch":
            common = common_scale(policy, [_number(tfl, after[a]) / _number(tfl, before[a]) for a in targets])
            factors = dict.fromkeys(targets, common)
            after = {axis: _rounded_size(tfl, before[axis], common) for axis in targets}
            changing = targets
    if regions:
        changing = targets
    return [
        _Axis(
            axis,
            before[axis],
            after[axis],
            factors[axis],
            _unless_kept(tfl, regions.get(targets.index(axis)), before[axis], after[axis]),
        )
        for axis in sorted(changing)
    ]


def _regions(node: TflNode, tfl: TflBuilder, sampling: Sampling, count: int) -> dict[int, Region]:
    """Start and end of each target's region, which concerns one way of placing coordinates only."""
    roi = node.optional(1)
    if sampling.coordinates != "tf_crop_and_resize":
        return {}
    if roi is None or roi.shape == (0,):
        node.unsupported("tf_crop_and_resize without a region of interest")
    parts = _numbers(tfl, roi, 2 * count)
    return {place: (parts[place], parts[count + place]) for place in range(count)}


def _unless_kept(
    tfl: TflBuilder, region: Region | None, before: Tensor, after: Tensor
) -> tuple[Elements, Elements] | None:
    """The region, or the whole axis where its size does not change: ONNX Runtime copies that."""
    if region is None:
        return None
    change = (_number(tfl, after) - _number(tfl, before)).call("abs")
    whole = (Elements(tfl, tfl.constant(np.array([number], np.float32))) for number in (0, 1))
    start, end = (
        change.where_at_least(0.5, _element(tfl, bound), kept)
        for bound, kept in zip(region, whole, strict=True)
    )
    return start, end


def _element(tfl: TflBuilder, number: float | Elements) -> Elements:
    return (
        number
        if isinstance(number, Elements)
        else Elements(tfl, tfl.constant(np.array([number], np.float32)))
    )


def _numbers(tfl: TflBuilder, values: Value, count: int) -> Sequence[float | Elements]:
    if values.constant is not None:
        numbers: list[float] = values.constant.astype(np.float32).tolist()
        return numbers
    tensor = tfl.tensor(tfl.float32(values))
    return [Elements(tfl, tfl.slice(tensor, [i], [1])) for i in range(count)]


def _number(tfl: TflBuilder, size: Tensor) -> Elements:
    return Elements(tfl, tfl.cast(size, np.float32))


def _rounded_size(tfl: TflBuilder, size: Tensor, scale: Elements) -> Tensor:
    return tfl.cast((_number(tfl, size) * scale + 0.5).call("floor").tensor, np.int32)


def _scaled(tfl: TflBuilder, size: Tensor, factor: float | Elements | None) -> Tensor:
    """floor(size * factor)."""
    assert factor is not None
    if isinstance(factor, float) and factor == int(factor):
        return tfl.op("mul", [size, tfl.int32([int(factor)])], [1])
    return tfl.cast((_number(tfl, size) * factor).call("floor").tensor, np.int32)


def _native_at_any_size(sampling: Sampling, axes: list[_Axis]) -> Native | None:
    """The TFLite op's parameters that sample the same whatever the size."""
    if sampling.mode == "cubic" or sampling.antialias:
        return None
    if sampling.mode == "nearest":
        return (False, False) if repeats_at_any_size(sampling, axes) else None
    return _LINEAR_AT_ANY_SIZE.get(sampling.coordinates) if goes_by_ratio(sampling, axes) else None


# ---- sampling by positions computed at run time, in the order of operations of resizing.source_positions


def _positions(tfl: TflBuilder, sampling: Sampling, axis: _Axis) -> Elements:
    """The position in the input of every output element, float32 [after]."""
    count = tfl.reshape(axis.after, ())
    indices = tfl.op("range", [tfl.constant(0, np.int32), count, tfl.constant(1, np.int32)], [None], np.int32)
    y = Elements(tfl, tfl.cast(indices, np.float32))
    before, after = (Elements(tfl, tfl.cast(size, np.float32)) for size in (axis.before, axis.after))
    # The compiler turns division by a constant into multiplication, which rounds otherwise: neither divisor is one.
    one = before.minimum(1.0)
    scale = after / before if axis.scale is None else one * axis.scale
    if axis.region is not None:
        return _in_region(y, before, after, *axis.region)
    match sampling.coordinates:
        case "asymmetric":
            return y / scale
        case "align_corners":
            # y * (before - 1), without a factor that may be folded to 0 (see TflBuilder._times_zero).
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


def _in_region(y: Elements, before: Elements, after: Elements, start: Elements, end: Elements) -> Elements:
    """tf_crop_and_resize: from the region's start to its end, or at its centre if there is one element only."""
    last = before - 1.0
    steps = (after - 1.0).maximum(1.0)
    # y * (before - 1), without a factor that may be folded to 0 (see TflBuilder._times_zero).
    spread = (y * before - y) * (end - start) / steps + last * start
    centre = y + last * ((start + end) * 0.5)
    return after.where_at_least(1.5, spread, centre)


def _rounded(positions: Elements, rounding: str) -> Elements:
    match rounding:
        case "floor" | "ceil":
            return positions.call(rounding)
        case _:
            lower = positions.call("floor")
            past_half = positions - lower - 0.5
            bound = -float(HALFWAY) if rounding == "round_prefer_ceil" else float(HALFWAY)
            return past_half.where_at_least(bound, lower + 1.0, lower)


def _indices(tfl: TflBuilder, positions: Elements, axis: _Axis) -> Tensor:
    """Whole positions as indices, those outside the axis moved to its ends."""
    whole = tfl.cast(positions.tensor, np.int32)
    last = tfl.op("sub", [axis.before, tfl.int32(1)], [1])
    above = tfl.op("maximum", [whole, tfl.int32(0)], [None])
    return tfl.op("minimum", [above, last], [None])


def _interpolated(tfl: TflBuilder, x: Value, axis: _Axis, positions: Elements) -> Value:
    """Each output element between its two neighbours."""
    lower = positions.call("floor")
    share = tfl.reshape((positions - lower).tensor, [None if a == axis.axis else 1 for a in range(x.rank)])
    near, far = (gathered(tfl, x, axis.axis, _indices(tfl, each, axis)) for each in (lower, lower + 1.0))
    step = broadcast(
        tfl, "mul", broadcast(tfl, "sub", far, near), tfl.converted(tfl.computed(share), x.dtype)
    )
    return broadcast(tfl, "add", near, step)


def _outside(tfl: TflBuilder, axis: _Axis, positions: Elements, rank: int) -> Value:
    """Where samples lie outside the input, as a condition that broadcasts along the axis."""
    last = _number(tfl, axis.before) - 1.0
    low = tfl.op("less", [positions.tensor, tfl.constant(0, np.float32)], [None], bool)
    high = tfl.op("greater", [positions.tensor, last.tensor], [None], bool)
    either = tfl.op("logical_or", [low, high], [None])
    return tfl.computed(tfl.reshape(either, [None if a == axis.axis else 1 for a in range(rank)]))


# ---- sampling by weights, as resizing.weight_matrix has them


def _weighted(tfl: TflBuilder, x: Value, axis: _Axis, positions: Elements, sampling: Sampling) -> Value:
    """The axis, its edge elements repeated as far as the weights reach, times a matrix made at run time."""
    stretch = _stretch(tfl, axis, sampling)
    reach = (stretch.call("rsqrt") * stretch.call("rsqrt") * REACH[sampling.mode]).call("ceil") + 1.0
    count = tfl.cast(reach.tensor, np.int32)
    bounds = [
        tfl.reshape(tensor, ())
        for tensor in (tfl.op("neg", [count], [1]), tfl.op("add", [axis.before, count], [1]))
    ]
    whole = Elements(tfl, tfl.cast(tfl.op("range", [*bounds, tfl.int32(1)], [None], np.int32), np.float32))
    matrix = _weights(tfl, whole, positions, stretch, axis, sampling)
    repeated = gathered(tfl, x, axis.axis, _indices(tfl, whole, axis))
    order = axis_last(x.rank, axis.axis)
    rows = tfl.computed(tfl.tensor(tfl.float32(repeated), order))
    result = batch_matmul(tfl, rows, tfl.computed(matrix))
    return tfl.converted(tfl.computed(result, order), x.dtype)


def _stretch(tfl: TflBuilder, axis: _Axis, sampling: Sampling) -> Elements:
    """What narrows the distances: the scale, where it shrinks and antialias is asked for."""
    before = _number(tfl, axis.before)
    if not sampling.antialias:
        return before.minimum(1.0)
    scale = _number(tfl, axis.after) / before if axis.scale is None else before.minimum(1.0) * axis.scale
    return scale.minimum(1.0)


def _weights(
    tfl: TflBuilder,
    whole: Elements,
    positions: Elements,
    stretch: Elements,
    axis: _Axis,
    sampling: Sampling,
) -> Tensor:
    """[reached elements, after]: each column adds up to 1."""
    rows = Elements(tfl, tfl.reshape(whole.tensor, [None, 1]))
    distances = (rows - positions).call("abs") * stretch
    shape = tfl.shape_of(distances.tensor)
    shares = weights(sampling, distances)
    if sampling.exclude_outside:
        shares = shares * inside(rows, _number(tfl, axis.before))
    total = tfl.op("sum", [shares.tensor, tfl.int32([0])], [1, shape[1]], keep_dims=True)
    return (shares / Elements(tfl, total)).tensor
