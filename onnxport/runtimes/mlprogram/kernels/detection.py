"""Boxes: non-maximum suppression."""

from __future__ import annotations

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.registry import Call, kernel


@kernel("non_maximum_suppression")
def non_maximum_suppression(
    boxes: Array,
    scores: Array,
    iou_threshold: Array,
    max_boxes: Array,
    call: Call,
    score_threshold: Array | None = None,
    per_class_suppression: Array | bool = False,
) -> tuple[Array, ...]:
    """The best boxes, by the highest of their classes' scores, that do not overlap a better one.

    From iOS17 the boxes are the last dimension, there is no score threshold and no count of what was found. What is
    missing to `max_boxes` is padded with zeros, and -1 for the index; where no score reaches the threshold, the best
    box is given all the same (both as Apple's own reference in coremltools' tests has it).
    """
    newer = call.at_least(7)
    if newer:
        boxes, scores = boxes.swapaxes(1, 2), scores.swapaxes(1, 2)
    batch, _, classes = scores.shape
    limit = int(max_boxes)
    kept_boxes, kept_scores = (np.zeros((batch, limit, width), np.float32) for width in (4, classes))
    indices, counts = np.full((batch, limit), -1, np.int32), np.zeros(batch, np.int32)
    for image in range(batch):
        lowest = -np.inf if score_threshold is None else float(score_threshold)
        found = _kept(boxes[image], scores[image], float(iou_threshold), lowest, bool(per_class_suppression))
        found = found[:limit]
        count = counts[image] = len(found)
        kept_boxes[image, :count], kept_scores[image, :count] = boxes[image, found], scores[image, found]
        indices[image, :count] = found
    if newer:
        return kept_boxes.swapaxes(1, 2), kept_scores.swapaxes(1, 2), indices
    return kept_boxes, kept_scores, indices, counts


def _kept(boxes: Array, scores: Array, overlap: float, lowest: float, per_class: bool) -> Array:
    """The indices of the surviving boxes of one image, best first."""
    best, classes = scores.max(axis=-1), scores.argmax(axis=-1)
    order = np.argsort(-best, kind="stable")
    left = order[best[order] >= lowest]
    survivors: list[int] = []
    while len(left):
        first, left = left[0], left[1:]
        survivors.append(int(first))
        rival = _overlaps(boxes[first], boxes[left]) > overlap
        if per_class:
            rival &= classes[left] == classes[first]
        left = left[~rival]
    return np.array(survivors or order[:1], np.int64)


def _overlaps(box: Array, others: Array) -> Array:
    """Intersection over union of boxes given as center and size; NaN where both are empty."""
    low, high = box[:2] - box[2:] / 2, box[:2] + box[2:] / 2
    sides = np.minimum(high, others[:, :2] + others[:, 2:] / 2) - np.maximum(
        low, others[:, :2] - others[:, 2:] / 2
    )
    shared = np.maximum(sides, 0).prod(axis=1)
    return np.asarray(shared / (box[2:].prod() + others[:, 2:].prod(axis=1) - shared))
