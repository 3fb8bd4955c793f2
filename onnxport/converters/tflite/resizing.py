"""Resizing on tensors: TFLite's own ops, gathering by index, and both with sizes known at run time only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxport.converters.tflite.broadcasting import broadcast
from onnxport.converters.tflite.builder import TflBuilder, TflNode, optional_constant
from onnxport.converters.tflite.elements import Elements
from onnxport.converters.tflite.layout import channels_last, normalized, permuted
from onnxport.converters.tflite.resampling import HALFWAY, Native, Sampling
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value
from onnxport.model import dims_of

# ONNX coordinate_transformation_mode -> TFLite's (align_corners, half_pixel_centers) that samples linearly
# the same at any size, if the scale is the ratio of the sizes.
_LINEAR_AT_ANY_SIZE: dict[str, Native] = {
    "align_corners": (True, False),
    "asymmetric": (False, False),
    "half_pixel": (False, True),
}
_CENTERED = frozenset(("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"))


def native_resize(
    tfl: TflBuilder, x: Value, mode: str, native: Native, sizes: Tensor, shape: tuple[int | None, ...]
) -> Value:
    """The last two of four axes resized to `sizes` by TFLite's own op."""
    order = channels_last(4)
    result = tfl.op(
        {"linear": "resize_bilinear", "nearest": "resize_nearest_neighbor"}[mode],
        [tfl.tensor(x, order), sizes],
        permuted(shape, order),
        align_corners=native[0],
        half_pixel_centers=native[1],
    )
    return tfl.computed(result, order)


def gathered(tfl: TflBuilder, x: Value, axis: int, indices: Tensor) -> Value:
    """The elements at `indices` of a logical axis."""
    order = tfl.common_order(x)
    place = order.index(axis)
    shape = list(permuted(x.shape, order))
    shape[place] = tfl.shape_of(indices)[0]
    result = tfl.op("gather", [tfl.tensor(x, order), indices], shape, axis=place, batch_dims=0)
    return tfl.computed(result, order)


@dataclass(frozen=True)
class _OpenAxis:
    """An axis to resize: its sizes as int32 [1], and the scale if the node gives one, else their ratio."""

    axis: int
    before: Tensor
    after: Tensor
    scale: float | None

    @property
    def is_whole(self) -> bool:
        return self.scale is not None and self.scale >= 1 and self.scale == int(self.scale)


def resized_at_run_time(node: TflNode, tfl: TflBuilder, sampling: Sampling) -> Value:
    """Resizes axes to sizes that follow from the input's, or are computed, at run time."""
    x, shape = node.x, node.output_shape()
    node.optional(1)  # a region of interest concerns tf_crop_and_resize only
    if node.attribute("keep_aspect_ratio_policy", "stretch") != "stretch" or sampling.antialias:
        node.unsupported("a keep_aspect_ratio_policy or antialias over an open size; use --shape NAME=...")
    if sampling.mode not in ("linear", "nearest") or sampling.coordinates == "tf_crop_and_resize":
        node.unsupported(
            f"{sampling.mode} sampling at {sampling.coordinates} coordinates of an open size; use --shape NAME=..."
        )
    axes = _open_axes(node, tfl)
    native = _native_at_any_size(sampling, axes)
    if native is not None and x.rank == 4 and x.dtype.kind == "f" and [each.axis for each in axes] == [2, 3]:
        sizes = tfl.op("concatenation", [each.after for each in axes], [2], axis=0)
        return native_resize(tfl, x, sampling.mode, native, sizes, shape)
    if sampling.mode == "linear" and x.dtype.kind != "f":
        node.unsupported(f"linear sampling of {x.dtype} elements, whose rounding ONNX leaves open")
    for each in axes:
        positions = _positions(tfl, sampling, each)
        if sampling.mode == "nearest":
            x = gathered(tfl, x, each.axis, _indices(tfl, _rounded(positions, sampling.rounding), each))
        else:
            x = _interpolated(tfl, x, each, positions)
    return x


def _open_axes(node: TflNode, tfl: TflBuilder) -> list[_OpenAxis]:
    """The axes that change, by number; images keep both spatial ones, so that one op resizes them."""
    x = node.x
    targets = [normalized(axis, x.rank) for axis in node.attribute("axes", range(x.rank))]
    scales = optional_constant(node, 2, "the scales")
    tensor = tfl.tensor(x, channels_last(4) if x.rank == 4 else None)
    places = {axis: (channels_last(4).index(axis) if x.rank == 4 else axis) for axis in targets}
    spatial = {2, 3} if x.rank == 4 else set()
    if scales is not None and scales.size:
        factors = dict(zip(targets, scales.astype(np.float32).tolist(), strict=True))
        changing = [axis for axis in targets if factors[axis] != 1 or axis in spatial]
        before = {axis: tfl.size(tensor, places[axis]) for axis in changing}
        return [_OpenAxis(a, before[a], _scaled(tfl, before[a], factors[a]), factors[a]) for a in changing]
    sizes = tfl.tensor(tfl.converted(node.input(3), np.int32))
    changing = [axis for axis in targets if axis in spatial or not _stays(node, axis)]
    return [
        _OpenAxis(axis, tfl.size(tensor, places[axis]), tfl.slice(sizes, [targets.index(axis)], [1]), None)
        for axis in changing
    ]


def _scaled(tfl: TflBuilder, size: Tensor, factor: float) -> Tensor:
    """floor(size * factor)."""
    if factor == int(factor):
        return tfl.op("mul", [size, tfl.int32([int(factor)])], [1])
    scaled = Elements(tfl, tfl.cast(size, np.float32)) * factor
    return tfl.cast(scaled.call("floor").tensor, np.int32)


def _stays(node: TflNode, axis: int) -> bool:
    """Whether shape inference knows the axis to keep its size: by number or by symbol."""
    source, result = node.node.inputs[0], node.node.outputs[0]
    assert source is not None
    before, after = dims_of(source)[axis], dims_of(result)[axis]
    return before is not None and before == after


def _native_at_any_size(sampling: Sampling, axes: list[_OpenAxis]) -> Native | None:
    """The TFLite op's parameters that sample the same whatever the size."""
    whole = all(each.is_whole for each in axes)
    if sampling.mode == "nearest":
        # At a whole factor f all of these copy element floor(i / f).
        from_corner = sampling.coordinates == "asymmetric" and sampling.rounding == "floor"
        centered = sampling.coordinates in _CENTERED and sampling.rounding.startswith("round")
        return (False, False) if whole and (from_corner or centered) else None
    by_ratio = whole or all(each.scale is None for each in axes) or sampling.coordinates == "align_corners"
    return _LINEAR_AT_ANY_SIZE.get(sampling.coordinates) if by_ratio else None


# ---- sampling by positions computed at run time, in the order of operations of resampling.source_positions


def _positions(tfl: TflBuilder, sampling: Sampling, axis: _OpenAxis) -> Elements:
    """The position in the input of every output element, float32 [after]."""
    count = tfl.reshape(axis.after, ())
    indices = tfl.op("range", [tfl.constant(0, np.int32), count, tfl.constant(1, np.int32)], [None], np.int32)
    y = Elements(tfl, tfl.cast(indices, np.float32))
    before, after = (Elements(tfl, tfl.cast(size, np.float32)) for size in (axis.before, axis.after))
    # The compiler turns division by a constant into multiplication, which rounds otherwise: neither divisor is one.
    one = before.minimum(1.0)
    scale = after / before if axis.scale is None else one * axis.scale
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


def _rounded(positions: Elements, rounding: str) -> Elements:
    match rounding:
        case "floor" | "ceil":
            return positions.call(rounding)
        case _:
            lower = positions.call("floor")
            past_half = positions - lower - 0.5
            bound = -float(HALFWAY) if rounding == "round_prefer_ceil" else float(HALFWAY)
            return past_half.where_at_least(bound, lower + 1.0, lower)


def _indices(tfl: TflBuilder, positions: Elements, axis: _OpenAxis) -> Tensor:
    """Whole positions as indices, those outside the axis moved to its ends."""
    whole = tfl.cast(positions.tensor, np.int32)
    last = tfl.op("sub", [axis.before, tfl.int32(1)], [1])
    above = tfl.op("maximum", [whole, tfl.int32(0)], [None])
    return tfl.op("minimum", [above, last], [None])


def _interpolated(tfl: TflBuilder, x: Value, axis: _OpenAxis, positions: Elements) -> Value:
    """Each output element between its two neighbours."""
    lower = positions.call("floor")
    share = tfl.reshape((positions - lower).tensor, [None if a == axis.axis else 1 for a in range(x.rank)])
    near, far = (gathered(tfl, x, axis.axis, _indices(tfl, each, axis)) for each in (lower, lower + 1.0))
    step = broadcast(
        tfl, "mul", broadcast(tfl, "sub", far, near), tfl.converted(tfl.computed(share), x.dtype)
    )
    return broadcast(tfl, "add", near, step)
