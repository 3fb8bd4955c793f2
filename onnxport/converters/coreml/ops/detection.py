"""NonMaxSuppression: MIL's own operator, with every class of every image as one image."""

from __future__ import annotations

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder, MilNode
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.shapes.dims import Size, product, reshape, size_of
from onnxport.converters.coreml.values import Value

_MANY = 100_000  # boxes of one class, for which MIL allocates memory
_MOST = 16_384  # where their number is open and the model keeps all: more than detectors have anchors


@lower("NonMaxSuppression")
def non_max_suppression(node: MilNode, mil: MilBuilder) -> None:
    """[image, class, box] of the boxes that no better one of their class overlaps (ONNX NonMaxSuppression-11)."""
    if not mil.at_least("iOS17"):
        node.unsupported(
            "needs iOS17, whose non_maximum_suppression takes scores of any size; give it as the target"
        )
    mil.compute = "fp32"  # half precision would tie scores, and move corners by pixels
    boxes, scores = node.input(0), node.input(1)
    images, count = size_of(mil, boxes, 0), size_of(mil, boxes, 1)
    classes = scores.shape[1]
    if classes is None:
        node.unsupported("has an open number of classes; fix it with --shape NAME=...")
    runs = product(mil, [images, classes])
    centred = _to_centres(node, mil, boxes)
    repeated = mil.tile(x=mil.expand_dims(x=centred, axes=[1]), reps=[1, classes, 1, 1])
    given = reshape(mil, scores, [runs, 1, count])
    _, best, found = mil.emit_all(
        "non_maximum_suppression",
        boxes=reshape(mil, repeated, [runs, 4, count]),
        scores=given,
        iou_threshold=_threshold(node),
        max_boxes=_max_boxes(node, mil, count),
        per_class_suppression=False,
    )
    # Results beyond the boxes left are -1.
    valid = mil.greater_equal(x=found, y=0)
    limit = node.optional(4)
    if limit is not None:
        above = mil.greater(x=best, y=mil.reshape(x=limit, shape=[1, 1, 1]))
        valid = mil.logical_and(x=valid, y=mil.squeeze(x=above, axes=[1]))
    node.emit(_rows(mil, found, valid, classes))


def _to_centres(node: MilNode, mil: MilBuilder, boxes: Value) -> Value:
    """Return the boxes as centre and size, [images, 4, boxes]."""
    flat = mil.transpose(x=boxes, perm=[0, 2, 1])
    first, second = mil.emit_all("split", x=flat, num_splits=2, axis=1)
    if node.attribute("center_point_box", 0):
        return mil.concat(values=[first, mil.maximum(x=second, y=0.0)], axis=1)
    # Corners come in either order.
    low, high = mil.minimum(x=first, y=second), mil.maximum(x=first, y=second)
    centre = mil.mul(x=mil.add(x=low, y=high), y=0.5)
    return mil.concat(values=[centre, mil.sub(x=high, y=low)], axis=1)


def _threshold(node: MilNode) -> float:
    allowed = node.optional(3)
    if allowed is None:
        return 0.0
    if allowed.constant is None:
        node.unsupported("its iou_threshold is computed at run time, and Core ML needs a constant")
    return float(allowed.constant.item())


def _max_boxes(node: MilNode, mil: MilBuilder, count: Size) -> int:
    """Return the most boxes to keep of a class, at most all of them."""
    most = node.optional(2)
    if most is not None and most.constant is None:
        node.unsupported(
            "its max_output_boxes_per_class is computed at run time, and Core ML needs a constant"
        )
    given = 0 if most is None or most.constant is None else int(most.constant.item())
    if given <= 0:
        node.unsupported(
            "selects no boxes (max_output_boxes_per_class is 0), and Core ML has no empty tensors"
        )
    kept = min(given, count) if isinstance(count, int) else given
    if kept > _MANY and not isinstance(count, int):
        mil.notes.append(
            f"NonMaxSuppression {node.name!r} keeps at most {_MOST:,} boxes of a class, the model any number"
        )
        return _MOST
    if kept > _MANY:
        node.unsupported(f"makes room for {kept} boxes; give it a smaller max_output_boxes_per_class")
    return kept


def _rows(mil: MilBuilder, found: Value, valid: Value, classes: int) -> Value:
    """Return [image, class, box] of the remaining boxes, in the order of images and classes."""
    places = mil.non_zero(x=mil.cast(x=valid, dtype="int32"))
    box = mil.expand_dims(x=mil.gather_nd(x=found, indices=places), axes=[1])
    run = mil.slice_by_index(x=places, begin=[0, 0], end=[0, 1], end_mask=[True, False])
    image = mil.floor_div(x=run, y=classes)
    class_ = mil.sub(x=run, y=mil.mul(x=image, y=classes))
    rows = mil.concat(values=[image, class_, box], axis=1)
    rows.dtype = np.dtype(np.int64)
    return rows
