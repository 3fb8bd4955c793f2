"""Images read at computed points: crop_resize, resample, affine."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.kernels.image_resizing import TIE, grid
from onnxport.runtimes.mlprogram.kernels.registry import Call, Flag, Float, Int, Undefined, kernel


@kernel("crop_resize")
def crop_resize(
    x: Array,
    call: Call,
    roi: Array | None = None,
    boxes: Array | None = None,
    box_indices: Array | None = None,
    target_height: Int = 1,
    target_width: Int = 1,
    normalized_coordinates: Flag = False,
    spatial_scale: Float = 1.0,
    box_coordinate_mode: str = "CORNERS_HEIGHT_FIRST",
    sampling_mode: str = "DEFAULT",
    pad_value: Float | None = None,
) -> Array:
    """Crop and resize boxes of images: <N, B, C, H, W> of `roi` up to iOS16, <N, C, H, W> of `boxes` from iOS17."""
    if roi is not None:
        values = roi.reshape(len(roi), -1)
        boxes, box_indices = values[:, -4:], values[:, 0] if values.shape[1] == 5 else None
    assert boxes is not None
    extents = _corners(boxes.astype(np.float64), box_coordinate_mode) * float(spatial_scale)
    if normalized_coordinates:
        extents = extents * (np.array(x.shape[2:] * 2) - 1)
    sizes = (int(target_height), int(target_width))
    outside = 0.0 if pad_value is None else float(pad_value)

    def crop(box: Array, images: Array) -> Array:
        points = [_between(sampling_mode, box[i], box[i + 2], sizes[i], call) for i in (0, 1)]
        within = [(p >= 0) & (p <= size - 1) for p, size in zip(points, x.shape[2:], strict=True)]
        if call.strict and pad_value is None and not call.at_least(6) and not all(map(np.all, within)):
            raise Undefined("crop_resize of a box beyond the image, before iOS16 gave it a padding value")
        rows, columns = np.meshgrid(*points, indexing="ij")
        wide = np.broadcast_to(columns, (len(images), *sizes))
        found = _bilinear(images, wide, np.broadcast_to(rows, wide.shape))
        return np.where(within[0][:, None] & within[1], found, np.float32(outside))

    if roi is not None and box_indices is None:
        return np.stack([crop(box, x) for box in extents])
    numbers = np.arange(len(extents)) if box_indices is None else box_indices.astype(np.int64)
    if ((numbers < 0) | (numbers >= len(x))).any():
        raise Undefined(f"crop_resize of images {numbers.tolist()}, where there are {len(x)}")
    cut = [crop(box, x[number : number + 1]) for box, number in zip(extents, numbers, strict=True)]
    return np.stack(cut) if roi is not None else np.concatenate(cut)


def _corners(boxes: Array, mode: str) -> Array:
    """Return boxes as top, left, bottom, right."""
    if mode.endswith("WIDTH_FIRST"):
        boxes = boxes[:, [1, 0, 3, 2]]
    if mode.startswith("CENTER_SIZE"):
        center, half = boxes[:, :2], boxes[:, 2:] / 2
        boxes = np.concatenate([center - half, center + half], axis=1)
    return boxes


def _between(mode: str, start: float, end: float, count: int, call: Call) -> Array:
    """Return resize_bilinear's grid over a box whose first and last pixels are `start` and `end`."""
    if mode in ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS"):
        return np.asarray(start + grid(mode, 2, count) * (end - start))
    if call.strict and end < start:
        raise Undefined(f"crop_resize of a box whose end is before its start, sampled by {mode}")
    return np.asarray(start + grid(mode, end - start + 1, count))


@kernel("resample")
def resample(
    x: Array,
    coordinates: Array,
    call: Call,
    sampling_mode: str,
    padding_mode: str,
    padding_value: Array,
    coordinates_mode: str,
    align_corners: Array,
) -> Array:
    places = []
    for i, size in ((0, x.shape[3]), (1, x.shape[2])):
        at = _pixels(coordinates[..., i].astype(np.float64), size, coordinates_mode, bool(align_corners))
        places.append(_fold(at, size, padding_mode))
    fill = float(padding_value) if padding_mode == "constant" else None
    if sampling_mode == "bilinear":
        return _bilinear(x, places[0], places[1], fill)
    if call.strict and any((np.abs(at % 1 - 0.5) < TIE).any() for at in places):
        raise Undefined("resample by nearest neighbour at points halfway between two pixels")
    columns, rows = (np.round(at).astype(np.int64) for at in places)
    return _pixel(x, rows, columns, fill)


@kernel("affine")
def affine(
    x: Array, transform_matrix: Array, output_height: Array, output_width: Array, call: Call, **sampling: Any
) -> Array:
    """Resample at the transformed points of a grid from -1 to 1."""
    height, width = int(output_height), int(output_width)
    if call.strict and 1 in (height, width):
        raise Undefined("affine to one row or column: its position is not documented")
    across, down = np.meshgrid(np.linspace(-1, 1, width), np.linspace(-1, 1, height))
    matrices = transform_matrix.astype(np.float64).reshape(-1, 2, 3)
    grids = np.einsum("bij,jhw->bhwi", matrices, np.stack([across, down, np.ones_like(down)]))
    grids = np.broadcast_to(grids, (len(x), height, width, 2))
    return np.asarray(resample(x, grids, call, **sampling))


def _pixels(at: Array, size: int, mode: str, align_corners: bool) -> Array:
    """Return coordinates in pixels; 0 is the center of the first one."""
    if mode == "unnormalized":
        return at
    part = (at + 1) / 2 if mode == "normalized_minus_one_to_one" else at
    return np.asarray(part * (size - 1) if align_corners else part * size - 0.5)


def _fold(at: Array, size: int, mode: str) -> Array:
    """Move coordinates beyond the image back into it, except for constant padding.

    `reflection` mirrors at the centers of the border pixels, `symmetric` at their outer edges.
    """
    if mode == "constant":
        return at
    if mode == "reflection" and size > 1:
        at = (size - 1) - np.abs(at % (2 * (size - 1)) - (size - 1))
    elif mode == "symmetric":
        at = size - np.abs((at + 0.5) % (2 * size) - size) - 0.5
    return np.clip(at, 0, size - 1)


def _bilinear(x: Array, columns: Array, rows: Array, fill: float | None = None) -> Array:
    """Interpolate the images at <B, h, w> points: <B, C, h, w>."""
    left, top = np.floor(columns), np.floor(rows)
    right, low = (columns - left)[:, None].astype(np.float32), (rows - top)[:, None].astype(np.float32)
    places = (((top + i).astype(np.int64), (left + j).astype(np.int64)) for i in (0, 1) for j in (0, 1))
    corners = [_pixel(x, rows, columns, fill) for rows, columns in places]
    above = corners[0] * (1 - right) + corners[1] * right
    below = corners[2] * (1 - right) + corners[3] * right
    return np.asarray(above * (1 - low) + below * low)


def _pixel(x: Array, rows: Array, columns: Array, fill: float | None) -> Array:
    """Return single pixels; beyond the image, `fill` or the nearest pixel of the border."""
    height, width = x.shape[2:]
    images = np.arange(len(x))[:, None, None]
    found = x[images, :, np.clip(rows, 0, height - 1), np.clip(columns, 0, width - 1)]
    found = np.moveaxis(found, -1, 1)
    if fill is None:
        return found
    within = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    return np.where(within[:, None], found, np.float32(fill))
