"""The sampling of one axis by ONNX Resize: indices (nearest) or a matrix of weights (linear, cubic, antialiased).

Resize is separable, so each axis is described on its own. Coordinates are computed in float32 and in the order of
operations of ONNX Runtime: the last bit decides a nearest neighbour halfway between two elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isclose
from typing import Any, NoReturn

import numpy as np

from onnxport.converters.lowering import NodeView
from onnxport.core.arrays import Array

# ONNX Runtime's tolerance for "halfway" after a division (upsamplebase.h).
HALFWAY = np.float32(1e-6)
# Elements on either side of a sample that have weights, at scale 1.
REACH = {"linear": 1, "cubic": 2}
_ONE = np.float32(1)
HALF = np.float32(0.5)

# ONNX nearest_mode -> the rule.
_ROUNDING: dict[str, Callable[[Array], Array]] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "round_prefer_ceil": lambda x: np.floor(x) + (x - np.floor(x) - HALF >= -HALFWAY),
    "round_prefer_floor": lambda x: np.floor(x) + (x - np.floor(x) - HALF > HALFWAY),
}


@dataclass(frozen=True)
class Sampling:
    """The attributes of a Resize node that decide how an axis is sampled (ONNX Resize-19)."""

    mode: str
    coordinates: str
    rounding: str
    cubic_a: float
    antialias: bool
    exclude_outside: bool
    extrapolation: float


@dataclass(frozen=True)
class Axis:
    """One axis to resize: its sizes, the scale between them, and the region of interest in it."""

    before: int
    after: int
    scale: np.float32
    roi: tuple[float, float] = (0.0, 1.0)


def source_positions(sampling: Sampling, axis: Axis) -> Array:
    """Return the position in the input of every output element, float32."""
    y = np.arange(axis.after, dtype=np.float32)
    size, scale = np.float32(axis.before), axis.scale
    match sampling.coordinates:
        case "asymmetric":
            return y / scale
        case "half_pixel":
            return (y + HALF) / scale - HALF
        case "pytorch_half_pixel":
            return (y + HALF) / scale - HALF if axis.after > 1 else np.zeros_like(y)
        case "align_corners":
            return y * (size - _ONE) / np.float32(axis.after - 1) if axis.after > 1 else np.zeros_like(y)
        case "half_pixel_symmetric":
            adjustment = np.float32(axis.after) / (scale * size)
            offset = size / np.float32(2) * (_ONE - adjustment)
            return offset + (y + HALF) / scale - HALF
        case "tf_crop_and_resize":
            start, end = (np.float32(bound) for bound in axis.roi)
            if axis.after == 1:
                return HALF * (start + end) * (size - _ONE) + y
            return start * (size - _ONE) + y * (end - start) * (size - _ONE) / np.float32(axis.after - 1)
    raise ValueError(f"no coordinate transformation mode {sampling.coordinates!r}")


def nearest_indices(sampling: Sampling, axis: Axis) -> Array:
    """Return the input element that each output element copies."""
    x = source_positions(sampling, axis)
    rounded: Array = _ROUNDING[sampling.rounding](x)
    return np.asarray(np.clip(rounded.astype(np.int64), 0, axis.before - 1))


def outside_mask(sampling: Sampling, axes: Mapping[int, Axis], rank: int) -> Array:
    """Return the elements outside the input along any axis, which take the extrapolation value; they broadcast."""
    found = np.zeros((1,) * rank, bool)
    if sampling.coordinates != "tf_crop_and_resize":
        return found
    for axis, description in axes.items():
        x = source_positions(sampling, description)
        is_outside = (x < 0) | (x > description.before - 1)
        found = found | is_outside.reshape([-1 if a == axis else 1 for a in range(rank)])
    return found


def is_alike(sampling: Sampling, axis: Axis, positions: Array) -> bool:
    """Return whether sampling at `positions` does as the node, to float32 noise in a position."""
    # Past the ends both repeat the last element.
    ours, theirs = (np.clip(x, 0, axis.before - 1) for x in (positions, source_positions(sampling, axis)))
    noise = max(1e-5, 4 * float(np.finfo(np.float32).eps) * axis.before)
    return bool(np.allclose(ours, theirs, rtol=0, atol=noise))


def weight_matrix(sampling: Sampling, axis: Axis) -> Array:
    """Return [after, before]: the weight of every input element in every output element."""
    x = source_positions(sampling, axis).astype(np.float64)
    stretch = min(float(axis.scale), 1.0) if sampling.antialias else 1.0
    radius = int(np.ceil(REACH[sampling.mode] / stretch)) + 1
    neighbours = np.floor(x)[:, None] + np.arange(-radius, radius + 1)
    distances = np.abs(neighbours - x[:, None]) * stretch
    weights = (
        np.clip(1 - distances, 0, 1) if sampling.mode == "linear" else _cubic(distances, sampling.cubic_a)
    )
    if sampling.exclude_outside:
        weights = np.where((neighbours < 0) | (neighbours >= axis.before), 0.0, weights)
    weights /= weights.sum(axis=1, keepdims=True)
    matrix = np.zeros((axis.after, axis.before))
    columns = np.clip(neighbours, 0, axis.before - 1).astype(np.int64)  # the edge elements repeat
    np.add.at(matrix, (np.arange(axis.after)[:, None], columns), weights)
    return matrix


def _cubic(x: Array, a: float) -> Array:
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


# ---- reading a Resize node


def read_sampling(node: NodeView[Any]) -> Sampling:
    return Sampling(
        mode=node.attribute("mode", "nearest"),
        coordinates=node.attribute("coordinate_transformation_mode", "half_pixel"),
        rounding=node.attribute("nearest_mode", "round_prefer_floor"),
        cubic_a=node.attribute("cubic_coeff_a", -0.75),
        antialias=bool(node.attribute("antialias", 0)),
        exclude_outside=bool(node.attribute("exclude_outside", 0)),
        extrapolation=node.attribute("extrapolation_value", 0.0),
    )


def refuse_rounding(node: NodeView[Any], sampling: Sampling) -> NoReturn:
    """Refuse to interpolate integers."""
    node.unsupported(f"samples {node.x.dtype} elements by {sampling.mode}, whose rounding ONNX leaves open")


def is_open(node: NodeView[Any], sampling: Sampling) -> bool:
    """Return whether a region, scales, or sizes that keep the aspect ratio are computed at run time."""
    matters = {
        1: sampling.coordinates == "tf_crop_and_resize",
        2: True,
        3: node.attribute("keep_aspect_ratio_policy", "stretch") != "stretch",
    }
    operands = [node.optional(index) for index, counts in matters.items() if counts]
    return any(o is not None and o.constant is None and o.shape != (0,) for o in operands)


def read_axes(node: NodeView[Any], sampling: Sampling) -> dict[int, Axis]:
    """Return the axes that change, by number; all shapes are known."""
    x, shape = node.x, node.output_shape()
    targets = [axis % x.rank for axis in node.attribute("axes", range(x.rank))]
    crops = sampling.coordinates == "tf_crop_and_resize"
    roi = _constant(node, 1, "the region of interest") if crops else None
    node.optional(1)
    scales = _constant(node, 2, "the scales")
    node.optional(3)  # shape inference has turned them into the result's shape
    policy = node.attribute("keep_aspect_ratio_policy", "stretch")
    ratios = {axis: np.float32(shape[axis] or 0) / np.float32(x.shape[axis] or 1) for axis in targets}
    if scales is not None and scales.size:
        ratios = dict(zip(targets, scales.astype(np.float32), strict=True))
        _refuse_disputed(node, ratios)
    elif node.has_input(3) and policy != "stretch":
        wanted = _constant(node, 3, "sizes with a keep_aspect_ratio_policy")
        assert wanted is not None
        each = [
            np.float32(size) / np.float32(x.shape[a] or 1) for a, size in zip(targets, wanted, strict=True)
        ]
        common = min(each) if policy == "not_larger" else max(each)
        ratios = dict.fromkeys(targets, common)
    if not crops and x.shape == shape:
        return {}  # ONNX Runtime copies an input of the same sizes, whatever the scales
    axes = {}
    for place, axis in enumerate(targets):
        region = (0.0, 1.0)
        if crops:
            if roi is None or not roi.size:
                node.unsupported("tf_crop_and_resize without a region of interest")
            if ratios[axis] != 1:  # ONNX Runtime copies an axis that keeps its size, whatever the region
                region = (float(roi[place]), float(roi[len(targets) + place]))
        description = Axis(x.shape[axis] or 0, shape[axis] or 0, ratios[axis], region)
        if description.before != description.after or not isclose(ratios[axis], 1) or region != (0.0, 1.0):
            axes[axis] = description
    return axes


def _refuse_disputed(node: NodeView[Any], scales: Mapping[int, np.float32]) -> None:
    """Refuse sizes on which ONNX Runtime, which rounds 5 * 1.4 to 7, and ONNX's shape inference disagree."""
    for axis, scale in scales.items():
        if int(np.floor(np.float32(node.x.shape[axis]) * scale)) != node.output_shape()[axis]:
            node.unsupported(
                f"scales an axis of {node.x.shape[axis]} elements by {scale}, for which ONNX Runtime and ONNX's shape "
                "inference find different sizes; give it sizes instead of scales"
            )


def _constant(node: NodeView[Any], index: int, what: str) -> Array | None:
    """Return an operand that must be constant, None if it is absent."""
    if not node.has_input(index):
        return None
    constant: Array | None = node.input(index).constant
    if constant is None:
        node.unsupported(f"{what} (input {index}) computed at run time")
    return constant
