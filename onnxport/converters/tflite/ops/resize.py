"""Resize: by TFLite's own resizing op where it samples the very same, by gathering or by a matrix elsewhere."""

from __future__ import annotations

from math import isclose

import numpy as np

from onnxport.converters.tflite.builder import Array, Tensor, TflBuilder, TflNode, Value, optional_constant
from onnxport.converters.tflite.layout import Permutation, axis_last, channels_last, normalized, permuted
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.resampling import (
    NATIVE,
    Axis,
    Native,
    Sampling,
    native_indices,
    native_matrix,
    nearest_indices,
    outside,
    weight_matrix,
)

# ONNX coordinate_transformation_mode -> TFLite's (align_corners, half_pixel_centers) that samples linearly
# the same at any size.
_LINEAR_AT_ANY_SIZE: dict[str, Native] = {
    "align_corners": (True, False),
    "asymmetric": (False, False),
    "half_pixel": (False, True),
}


@lower("Resize")
def resize(node: TflNode, tfl: TflBuilder) -> None:
    """Samples axes at another density (ONNX Resize-19)."""
    x, shape, sampling = node.x, node.output_shape(), _sampling(node)
    changed = [axis for axis in range(x.rank) if x.shape[axis] is None or shape[axis] is None]
    if changed:
        node.emit(_at_run_time(node, tfl, sampling))
        return
    axes = _axes(node, sampling)
    if sampling.mode != "nearest" and x.dtype.kind != "f":
        node.unsupported(f"{sampling.mode} sampling of {x.dtype} elements, whose rounding ONNX leaves open")
    is_image = x.rank == 4 and set(axes) <= {2, 3} and x.dtype.kind == "f"
    native = _native_for(sampling, axes) if is_image else None
    if native is not None:
        sizes = tfl.int32([dim or 0 for dim in shape[2:]])
        node.emit(_native(tfl, x, sampling.mode, native, sizes, shape))
        return
    result = x
    for axis, description in axes.items():
        if sampling.mode == "nearest":
            result = _gathered(tfl, result, axis, tfl.int32(nearest_indices(sampling, description)))
        else:
            result = _weighted(tfl, result, axis, weight_matrix(sampling, description))
    node.emit(_extrapolated(tfl, result, axes, sampling))


def _sampling(node: TflNode) -> Sampling:
    return Sampling(
        mode=node.attribute("mode", "nearest"),
        coordinates=node.attribute("coordinate_transformation_mode", "half_pixel"),
        rounding=node.attribute("nearest_mode", "round_prefer_floor"),
        cubic_a=node.attribute("cubic_coeff_a", -0.75),
        antialias=bool(node.attribute("antialias", 0)),
        exclude_outside=bool(node.attribute("exclude_outside", 0)),
        extrapolation=node.attribute("extrapolation_value", 0.0),
    )


def _axes(node: TflNode, sampling: Sampling) -> dict[int, Axis]:
    """The axes that change, by number, from the node's roi, scales, sizes and axes."""
    x, shape = node.x, node.output_shape()
    targets = [normalized(axis, x.rank) for axis in node.attribute("axes", range(x.rank))]
    roi = optional_constant(node, 1, "the region of interest")
    scales = optional_constant(node, 2, "the scales")
    sizes = node.optional(3)  # shape inference has turned them into the result's shape
    policy = node.attribute("keep_aspect_ratio_policy", "stretch")
    ratios = {axis: np.float32(shape[axis] or 0) / np.float32(x.shape[axis] or 1) for axis in targets}
    if scales is not None and scales.size:
        ratios = dict(zip(targets, scales.astype(np.float32), strict=True))
    elif sizes is not None and policy != "stretch":
        wanted = _constant_sizes(node, sizes)
        each = [
            np.float32(size) / np.float32(x.shape[a] or 1) for a, size in zip(targets, wanted, strict=True)
        ]
        common = min(each) if policy == "not_larger" else max(each)
        ratios = dict.fromkeys(targets, common)
    axes = {}
    for place, axis in enumerate(targets):
        region = (0.0, 1.0)
        if sampling.coordinates == "tf_crop_and_resize":
            if roi is None or not roi.size:
                node.unsupported("tf_crop_and_resize without a region of interest")
            region = (float(roi[place]), float(roi[len(targets) + place]))
        description = Axis(x.shape[axis] or 0, shape[axis] or 0, ratios[axis], region)
        if description.before != description.after or not isclose(ratios[axis], 1) or region != (0.0, 1.0):
            axes[axis] = description
    return axes


def _constant_sizes(node: TflNode, sizes: Value) -> list[int]:
    if sizes.constant is None:
        node.unsupported("a keep_aspect_ratio_policy with sizes computed at run time")
    constant: list[int] = sizes.constant.tolist()
    return constant


def _native_for(sampling: Sampling, axes: dict[int, Axis]) -> Native | None:
    """The TFLite op's parameters that sample every axis the same, if there are such."""
    if sampling.mode == "cubic" or sampling.coordinates == "tf_crop_and_resize":
        return None
    return next(
        (native for native in NATIVE if all(_samples_alike(sampling, native, a) for a in axes.values())), None
    )


def _samples_alike(sampling: Sampling, native: Native, axis: Axis) -> bool:
    if sampling.mode == "nearest":
        ours = native_indices(native, axis.before, axis.after)
        return bool(np.array_equal(ours, nearest_indices(sampling, axis)))
    weights = native_matrix(native, axis.before, axis.after)
    return bool(np.allclose(weights, weight_matrix(sampling, axis), rtol=0, atol=1e-5))


def _native(
    tfl: TflBuilder,
    x: Value,
    mode: str,
    native: Native,
    sizes: Tensor,
    shape: tuple[int | None, ...],
) -> Value:
    order = channels_last(4)
    result = tfl.op(
        {"linear": "resize_bilinear", "nearest": "resize_nearest_neighbor"}[mode],
        [tfl.tensor(x, order), sizes],
        permuted(shape, order),
        align_corners=native[0],
        half_pixel_centers=native[1],
    )
    return tfl.computed(result, order)


# ---- any sampling


def _gathered(tfl: TflBuilder, x: Value, axis: int, indices: Tensor) -> Value:
    order = tfl.common_order(x)
    place = order.index(axis)
    shape = list(permuted(x.shape, order))
    shape[place] = tfl.shape_of(indices)[0]
    result = tfl.op("gather", [tfl.tensor(x, order), indices], shape, axis=place, batch_dims=0)
    return tfl.computed(result, order)


def _weighted(tfl: TflBuilder, x: Value, axis: int, matrix: Array) -> Value:
    """The axis multiplied by a matrix [after, before], as a fully connected layer over it."""
    order: Permutation = axis_last(x.rank, axis)
    *leading, _ = permuted(x.shape, order)
    result = tfl.op(
        "fully_connected",
        [tfl.tensor(x, order), tfl.constant(matrix, x.dtype), tfl.no_value()],
        (*leading, len(matrix)),
        keep_num_dims=x.rank > 2,
        weights_format="DEFAULT",
    )
    return tfl.computed(result, order)


def _extrapolated(tfl: TflBuilder, result: Value, axes: dict[int, Axis], sampling: Sampling) -> Value:
    """The extrapolation value put where a sample lies outside the input along any axis."""
    lies_outside = np.zeros((1,) * result.rank, bool)
    for axis, description in axes.items():
        along = [-1 if a == axis else 1 for a in range(result.rank)]
        lies_outside = lies_outside | outside(sampling, description).reshape(along)
    if not lies_outside.any():
        return result
    order = tfl.common_order(result)
    mask = tfl.constant(np.transpose(lies_outside, order))
    fill = tfl.constant(sampling.extrapolation, result.dtype)
    shape = permuted(result.shape, order)
    return tfl.computed(tfl.op("select_v2", [mask, fill, tfl.tensor(result, order)], shape), order)


# ---- sizes known at run time only


def _at_run_time(node: TflNode, tfl: TflBuilder, sampling: Sampling) -> Value:
    """Resizes the last two of four axes to sizes that follow from the input's at run time."""
    x, shape = node.x, node.output_shape()
    node.optional(1)  # a region of interest concerns tf_crop_and_resize only, refused below
    scales = optional_constant(node, 2, "the scales")
    sizes = node.optional(3)
    axes = [normalized(axis, x.rank) for axis in node.attribute("axes", range(x.rank))]
    if (
        node.attribute("keep_aspect_ratio_policy", "stretch") != "stretch"
        or x.rank != 4
        or x.shape[1] is None
    ):
        node.unsupported("an open size; fix the input's size with --shape NAME=...")
    tensor = tfl.tensor(x, channels_last(4))
    if scales is not None and scales.size:
        factors = dict(zip(axes, scales.tolist(), strict=True))
        if any(factors.get(axis, 1.0) != 1.0 for axis in (0, 1)):
            node.unsupported("resizes other than the last two of four axes")
        wanted = [factors.get(axis, 1.0) for axis in (2, 3)]
        if any(factor != int(factor) or factor < 1 for factor in wanted):
            node.unsupported(
                f"an open size scaled by {wanted}, no whole numbers; fix the input's size with --shape NAME=..."
            )
        target = _scaled_sizes(tfl, tensor, [int(factor) for factor in wanted])
        native = _native_at_any_size(node, sampling)
    elif sizes is not None and (axes == [2, 3] or (axes == [0, 1, 2, 3] and shape[:2] == x.shape[:2])):
        if sampling.mode == "nearest":
            node.unsupported(
                "nearest sampling to sizes computed at run time; fix the input's size with --shape NAME=..."
            )
        wide = tfl.tensor(tfl.converted(sizes, np.int32))
        target = wide if axes == [2, 3] else tfl.slice(wide, [2], [2])
        native = _native_at_any_size(node, sampling)
    else:
        node.unsupported("an open size; fix the input's size with --shape NAME=...")
    return _native(tfl, x, sampling.mode, native, target, shape)


def _scaled_sizes(tfl: TflBuilder, tensor: Tensor, factors: list[int]) -> Tensor:
    sizes = tfl.slice(tfl.op("shape", [tensor], [4], np.int32), [1], [2])
    return tfl.op("mul", [sizes, tfl.int32(factors)], [2])


def _native_at_any_size(node: TflNode, sampling: Sampling) -> Native:
    """The TFLite op's parameters that sample the same whatever the size, at a whole factor for nearest."""
    rounds = sampling.rounding.startswith("round")
    at_centers = sampling.coordinates in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric")
    from_corner = sampling.coordinates == "asymmetric" and sampling.rounding == "floor"
    if sampling.mode == "nearest" and (from_corner or (at_centers and rounds)):
        return False, False
    if sampling.mode == "linear" and not sampling.antialias and sampling.coordinates in _LINEAR_AT_ANY_SIZE:
        return _LINEAR_AT_ANY_SIZE[sampling.coordinates]
    return node.unsupported(
        f"{sampling.mode} sampling at {sampling.coordinates} coordinates of an open size; "
        "fix the input's size with --shape NAME=..."
    )
