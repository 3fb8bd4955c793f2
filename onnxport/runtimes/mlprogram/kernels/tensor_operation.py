"""Tensors from a shape or a few numbers, sorted and selected elements, non-maximum suppression."""

from __future__ import annotations

import math

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.kernels.registry import Call, Flag, Int, kernel, register

register(
    {
        "argsort": lambda x, axis=-1, ascending=False: _order(x, int(axis), bool(ascending)),
        "fill": lambda shape, value=0.0: np.full([int(size) for size in shape.reshape(-1)], value),
        "fill_like": lambda ref_tensor, value=0.0: np.full(ref_tensor.shape, value),
        "non_zero": lambda x: np.argwhere(x),
        "shape": lambda x: np.array(x.shape, np.int32),
    }
)


@kernel("range_1d")
def range_1d(start: Array, end: Array, step: Array, call: Call) -> Array:
    first, last, by = (each.reshape(()) for each in (start, end, step))
    if not by:
        call.undefined("a range in steps of zero")
    is_integer = first.dtype.kind != "f"
    span = (int(last) - int(first)) / (int(by) or 1) if is_integer else float((last - first) / by)
    count = np.arange(max(0, math.ceil(span)))
    return np.asarray(first + count.astype(first.dtype) * by)


def _order(x: Array, axis: int, ascending: bool) -> Array:
    """Return the sorted positions; of equals the first comes first, which the documentation leaves open."""
    if ascending:
        return np.asarray(np.argsort(x, axis=axis, kind="stable"))
    # Not argsort of -x: that overflows at the lowest integer and is wrong for unsigned ones.
    flipped = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return np.asarray(x.shape[axis] - 1 - np.flip(flipped, axis))


@kernel("topk")
def topk(
    x: Array,
    k: Int = 1,
    axis: Int = -1,
    ascending: Flag = False,
    sort: Flag = True,
    return_indices: Flag = True,
    output_indices_dtype: str = "int32",
) -> tuple[Array, ...]:
    """Return the first `k`, always sorted: without `sort` any order is right."""
    place = int(axis) % x.ndim
    count = x.shape[place] if int(k) == -1 else int(k)
    if count > x.shape[place]:
        raise ValueError(f"the first {count} of {x.shape[place]}")
    at = np.take(_order(x, place, bool(ascending)), np.arange(count), axis=place)
    values = np.take_along_axis(x, at, place)
    return (values, at) if return_indices else (values,)


@kernel("one_hot")
def one_hot(
    indices: Array,
    one_hot_vector_size: Array,
    call: Call,
    axis: Int = -1,
    on_value: Int = 1,
    off_value: Int = 0,
) -> Array:
    size = int(one_hot_vector_size.reshape(()))
    if ((indices < 0) | (indices >= size)).any():
        call.undefined(f"indices outside of vectors of {size}")
    place = int(axis) % (indices.ndim + 1)
    shape = [1] * (indices.ndim + 1)
    shape[place] = size
    hot = np.expand_dims(indices, place) == np.arange(size).reshape(shape)
    return np.where(hot, on_value, off_value)


@kernel("cumsum")
def cumsum(x: Array, axis: Int = 0, exclusive: Flag = False, reverse: Flag = False) -> Array:
    place = int(axis) % x.ndim
    summed = np.cumsum(np.flip(x, place) if reverse else x, axis=place, dtype=x.dtype)
    if exclusive:
        before = np.take(summed, np.arange(x.shape[place] - 1), axis=place)
        first = np.zeros_like(np.take(summed, [0], axis=place))
        summed = np.concatenate([first, before], axis=place)
    return np.flip(summed, place) if reverse else summed


@kernel("non_maximum_suppression")
def non_maximum_suppression(
    boxes: Array,
    scores: Array,
    iou_threshold: Array,
    max_boxes: Array,
    call: Call,
    score_threshold: Array | None = None,
    per_class_suppression: Flag = False,
) -> tuple[Array, ...]:
    """Return the boxes with the highest score of any class that overlap no better box.

    From iOS17 the boxes are the last dimension, without score threshold and count. Results are padded to `max_boxes`
    with zeros, indices with -1. Where no score reaches the threshold, the best box is returned (as in coremltools'
    tests).
    """
    newer = call.at_least(7)
    if newer:
        boxes, scores = boxes.swapaxes(1, 2), scores.swapaxes(1, 2)
    batch, _, classes = scores.shape
    limit = int(max_boxes)
    best_boxes, best_scores = (np.zeros((batch, limit, width), np.float32) for width in (4, classes))
    indices, counts = np.full((batch, limit), -1, np.int32), np.zeros(batch, np.int32)
    for image in range(batch):
        lowest = -np.inf if score_threshold is None else float(score_threshold)
        found = _suppress(
            boxes[image], scores[image], float(iou_threshold), lowest, bool(per_class_suppression), limit
        )
        count = counts[image] = len(found)
        best_boxes[image, :count], best_scores[image, :count] = boxes[image, found], scores[image, found]
        indices[image, :count] = found
    if newer:
        return best_boxes.swapaxes(1, 2), best_scores.swapaxes(1, 2), indices
    return best_boxes, best_scores, indices, counts


def _suppress(
    boxes: Array, scores: Array, overlap: float, lowest: float, per_class: bool, limit: int
) -> Array:
    """Return the indices of one image's first `limit` surviving boxes, best first."""
    best, classes = scores.max(axis=-1), scores.argmax(axis=-1)
    order = np.argsort(-best, kind="stable")
    left = order[best[order] >= lowest]
    extents = _extents(boxes[left])
    survivors: list[int] = []
    while len(left) and len(survivors) < limit:
        first, left = left[0], left[1:]
        box, extents = extents[:, :1], extents[:, 1:]
        survivors.append(int(first))
        suppressed = _overlaps(box, extents) > overlap
        if per_class:
            suppressed &= classes[left] == classes[first]
        if suppressed.any():
            left, extents = left[~suppressed], extents[:, ~suppressed]
    return np.array(survivors or order[: min(limit, 1)], np.int64)


def _extents(boxes: Array) -> Array:
    """Return low x and y, high x and y, and area, a row each, of boxes given as center and size."""
    x, y, width, height = boxes.T
    return np.stack([x - width / 2, y - height / 2, x + width / 2, y + height / 2, width * height])


def _overlaps(box: Array, others: Array) -> Array:
    """Return the intersection over union of a box with others, as extents; NaN where both are empty."""
    sides = np.minimum(box[2:4], others[2:4]) - np.maximum(box[:2], others[:2])
    shared = np.maximum(sides, 0).prod(axis=0)
    return np.asarray(shared / (box[4] + others[4] - shared))
