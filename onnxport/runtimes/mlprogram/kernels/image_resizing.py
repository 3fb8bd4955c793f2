"""Images resized: a grid of points per dimension, and the values at these points."""

from __future__ import annotations

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.kernels.registry import Call, Flag, Float, Int, Undefined, kernel

# Tolerance of a tie: a grid computed in float32 differs this much from one in float64.
TIE = 1e-5


def grid(mode: str, size: float, count: int) -> Array:
    """Return `count` sampling points of a dimension of `size`, by resize_bilinear's documented sampling modes."""
    steps = np.arange(count, dtype=np.float64)
    if mode in ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS"):
        if count == 1:
            return np.array([(size - 1) / 2 if mode == "ALIGN_CORNERS" else 0.0])
        points = steps * ((size - 1) / (count - 1))
    elif mode == "DEFAULT":
        points = steps * (size / count)  # (size - size/count) / (count - 1) is the same
    elif mode == "OFFSET_CORNERS":
        points = (steps + 0.5) * (max(1, size - 1) / count)
    elif mode == "UNALIGN_CORNERS":
        points = (steps + 0.5) * (size / count) - 0.5
    else:
        raise ValueError(f"no sampling mode {mode!r}")
    return np.clip(points, 0, size - 1)


def linear(x: Array, axis: int, points: Array) -> Array:
    """Interpolate `x` linearly at `points` of one axis."""
    low = np.floor(points).astype(np.int64)
    high = np.minimum(low + 1, x.shape[axis] - 1)
    shape = [-1 if each == axis % x.ndim else 1 for each in range(x.ndim)]
    part = (points - low).astype(np.float32).reshape(shape)
    first = np.take(x, low, axis)
    return np.asarray(first + (np.take(x, high, axis) - first) * part)


def nearest(x: Array, axis: int, points: Array, call: Call) -> Array:
    """Return the pixels of `x` nearest to `points`; a tie is not documented."""
    if call.strict and (np.abs(points % 1 - 0.5) < TIE).any():
        raise Undefined(f"{call.operation.type} by nearest neighbour at points halfway between two pixels")
    return np.take(x, np.ceil(points - 0.5).astype(np.int64), axis)


@kernel("resize")
def resize(
    x: Array,
    shape: Array,
    resized_dims: Array,
    call: Call,
    interpolation_mode: str = "LINEAR",
    sampling_mode: str = "DEFAULT",
) -> Array:
    """Resize the last `resized_dims` dimensions to the last sizes of `shape`; 0 keeps a size."""
    count = int(resized_dims)
    wanted = [int(each) for each in shape[len(shape) - count :]]
    dtype = x.dtype
    for axis, size in zip(range(x.ndim - count, x.ndim), wanted, strict=True):
        if size in (0, x.shape[axis]) and sampling_mode != "OFFSET_CORNERS":
            continue  # in every other mode the grid is the pixels
        points = grid(sampling_mode, x.shape[axis], size or x.shape[axis])
        x = linear(x, axis, points) if interpolation_mode == "LINEAR" else nearest(x, axis, points, call)
    if call.strict and dtype.kind == "i" and interpolation_mode == "LINEAR" and (x != np.round(x)).any():
        raise Undefined("resize of integers to fractions")
    return x.astype(dtype)


@kernel("resize_bilinear")
def resize_bilinear(
    x: Array, target_size_height: Int = 1, target_size_width: Int = 1, sampling_mode: str = "DEFAULT"
) -> Array:
    for axis, size in ((-2, int(target_size_height)), (-1, int(target_size_width))):
        x = linear(x, axis, grid(sampling_mode, x.shape[axis], size))
    return x


@kernel("resize_nearest_neighbor")
def resize_nearest_neighbor(
    x: Array, target_size_height: Array, target_size_width: Array, call: Call
) -> Array:
    for axis, size in ((-2, int(target_size_height)), (-1, int(target_size_width))):
        x = _repeat(x, axis, size, call)
    return x


@kernel("upsample_nearest_neighbor")
def upsample_nearest_neighbor(
    x: Array, call: Call, scale_factor_height: Float = 1, scale_factor_width: Float = 1
) -> Array:
    for axis, scale in ((-2, scale_factor_height), (-1, scale_factor_width)):
        x = _repeat(x, axis, _scaled_size(x.shape[axis], scale), call)
    return x


@kernel("upsample_bilinear")
def upsample_bilinear(
    x: Array,
    call: Call,
    scale_factor_height: Float = 1,
    scale_factor_width: Float = 1,
    align_corners: Flag = True,
    half_pixel_centers: Flag | None = None,
) -> Array:
    """Upsample; the grid follows from the sizes, not from the factors ("recompute_scale_factor=True")."""
    aligned = bool(align_corners)
    halves = not aligned if half_pixel_centers is None else bool(half_pixel_centers)
    if aligned and halves:
        raise Undefined("upsample_bilinear with both align_corners and half_pixel_centers")
    mode = "STRICT_ALIGN_CORNERS" if aligned else "UNALIGN_CORNERS" if halves else "DEFAULT"
    for axis, scale in ((-2, scale_factor_height), (-1, scale_factor_width)):
        size = x.shape[axis]
        x = linear(x, axis, grid(mode, size, _scaled_size(size, scale)))
    return x


def _scaled_size(size: int, scale: Float) -> int:
    """Return the scaled size, in float32 as the factor: in float64, 10 times a float32 factor may miss its integer."""
    return int(np.floor(np.float32(size) * np.float32(scale)))


def _repeat(x: Array, axis: int, count: int, call: Call) -> Array:
    """Return the nearest neighbours for operators without a sampling mode: each pixel an integer number of times.

    At any other ratio the pixel depends on the grid, and is defined only where the usual grids, from the corners and
    from the centres, agree.
    """
    size = x.shape[axis]
    steps = np.arange(count)
    corners, centers = steps * size // count, (2 * steps + 1) * size // (2 * count)
    if call.strict and (corners != centers).any():
        raise Undefined(
            f"{call.operation.type} from {size} to {count} pixels, which is not an integer multiple"
        )
    return np.asarray(np.take(x, corners, axis))
