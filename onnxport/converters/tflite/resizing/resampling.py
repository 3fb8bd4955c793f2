"""How ONNX Resize samples one axis: as indices (nearest) or as a matrix of weights (linear, cubic, antialiased).

Resize is separable, so each axis is described on its own. Coordinates are computed in float32 and in the order of
operations of ONNX Runtime, because a nearest neighbour halfway between two elements hangs on the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

# ONNX Runtime takes for halfway what is so near to it (upsamplebase.h), as divisions leave it.
HALFWAY = np.float32(1e-6)
# How far a sample reaches for elements on either side, at scale 1.
REACH = {"linear": 1, "cubic": 2}
_ONE = np.float32(1)
_HALF = np.float32(0.5)

# ONNX nearest_mode -> the rule.
_ROUNDING: dict[str, Callable[[Array], Array]] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "round_prefer_ceil": lambda x: np.floor(x) + (x - np.floor(x) - _HALF >= -HALFWAY),
    "round_prefer_floor": lambda x: np.floor(x) + (x - np.floor(x) - _HALF > HALFWAY),
}


@dataclass(frozen=True)
class Sampling:
    """The attributes of a Resize node that say how an axis is sampled (ONNX Resize-19)."""

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
    """The position in the input, as a float32, of every output element."""
    y = np.arange(axis.after, dtype=np.float32)
    size, scale = np.float32(axis.before), axis.scale
    match sampling.coordinates:
        case "asymmetric":
            return y / scale
        case "half_pixel":
            return (y + _HALF) / scale - _HALF
        case "pytorch_half_pixel":
            return (y + _HALF) / scale - _HALF if axis.after > 1 else np.zeros_like(y)
        case "align_corners":
            return y * (size - _ONE) / np.float32(axis.after - 1) if axis.after > 1 else np.zeros_like(y)
        case "half_pixel_symmetric":
            adjustment = np.float32(axis.after) / (scale * size)
            offset = size / np.float32(2) * (_ONE - adjustment)
            return offset + (y + _HALF) / scale - _HALF
        case "tf_crop_and_resize":
            start, end = (np.float32(bound) for bound in axis.roi)
            if axis.after == 1:
                return _HALF * (start + end) * (size - _ONE) + y
            return start * (size - _ONE) + y * (end - start) * (size - _ONE) / np.float32(axis.after - 1)
    raise ValueError(f"no coordinate transformation mode {sampling.coordinates!r}")


def nearest_indices(sampling: Sampling, axis: Axis) -> Array:
    """The input element that each output element copies."""
    x = source_positions(sampling, axis)
    rounded: Array = _ROUNDING[sampling.rounding](x)
    return np.asarray(np.clip(rounded.astype(np.int64), 0, axis.before - 1))


def outside(sampling: Sampling, axis: Axis) -> Array:
    """Which output elements lie outside the input and take the extrapolation value."""
    x = source_positions(sampling, axis)
    if sampling.coordinates != "tf_crop_and_resize":
        return np.zeros(x.shape, bool)
    return (x < 0) | (x > axis.before - 1)


def weight_matrix(sampling: Sampling, axis: Axis) -> Array:
    """[after, before]: the weight of every input element in every output element."""
    x = source_positions(sampling, axis).astype(np.float64)
    stretch = min(float(axis.scale), 1.0) if sampling.antialias else 1.0
    radius = int(np.ceil(REACH[sampling.mode] / stretch)) + 1
    neighbours = np.floor(x)[:, None] + np.arange(-radius, radius + 1)
    distances = np.abs(neighbours - x[:, None]) * stretch
    weights = _linear(distances) if sampling.mode == "linear" else _cubic(distances, sampling.cubic_a)
    if sampling.exclude_outside:
        weights = np.where((neighbours < 0) | (neighbours >= axis.before), 0.0, weights)
    weights /= weights.sum(axis=1, keepdims=True)
    matrix = np.zeros((axis.after, axis.before))
    columns = np.clip(neighbours, 0, axis.before - 1).astype(np.int64)  # the edge elements repeat
    np.add.at(matrix, (np.arange(axis.after)[:, None], columns), weights)
    return matrix


def _linear(distances: Array) -> Array:
    return np.asarray(np.clip(1 - distances, 0, 1))


def _cubic(x: Array, a: float) -> Array:
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


# ---- what TFLite's own resizing ops sample


# (align_corners, half_pixel_centers) of RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR.
Native = tuple[bool, bool]
NATIVE: tuple[Native, ...] = ((False, False), (False, True), (True, False))


def native_scale(native: Native, before: int, after: int) -> np.float32:
    align_corners, _ = native
    if align_corners and after > 1:
        return np.float32(before - 1) / np.float32(after - 1)
    return np.float32(before) / np.float32(after)


def native_indices(native: Native, before: int, after: int) -> Array:
    """The element that RESIZE_NEAREST_NEIGHBOR copies (kernels/internal/reference/resize_nearest_neighbor.h)."""
    align_corners, half_pixel = native
    x = (np.arange(after, dtype=np.float32) + (_HALF if half_pixel else 0)) * native_scale(
        native, before, after
    )
    rounded = np.floor(x + _HALF) if align_corners else np.floor(x)
    return np.asarray(np.clip(rounded.astype(np.int64), 0, before - 1))


def native_positions(native: Native, before: int, after: int) -> Array:
    """Where RESIZE_BILINEAR samples (kernels/internal/reference/resize_bilinear.h)."""
    y, scale = np.arange(after, dtype=np.float32), native_scale(native, before, after)
    return (y + _HALF) * scale - _HALF if native[1] else y * scale


def samples_alike(sampling: Sampling, native: Native, axis: Axis) -> bool:
    """Whether TFLite's op samples the axis as the node does, to float32 noise in a position."""
    if sampling.mode == "nearest":
        ours = native_indices(native, axis.before, axis.after)
        return bool(np.array_equal(ours, nearest_indices(sampling, axis)))
    if sampling.mode == "cubic" or (sampling.antialias and axis.scale < 1):
        return False
    # Past the ends both repeat the last element.
    last = axis.before - 1
    ours, theirs = native_positions(native, axis.before, axis.after), source_positions(sampling, axis)
    noise = max(1e-5, 4 * float(np.finfo(np.float32).eps) * axis.before)
    return bool(np.allclose(np.clip(ours, 0, last), np.clip(theirs, 0, last), rtol=0, atol=noise))
