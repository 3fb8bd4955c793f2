"""NonMaxSuppression: TFLite's own op per image and class, on boxes sorted without ties."""

from __future__ import annotations

import numpy as np

from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value, constant, scalar

# Images times classes; each takes half a dozen ops.
_MAX_RUNS = 1000
_TINY = float(np.finfo(np.float32).tiny)


@lower("NonMaxSuppression")
def non_max_suppression(node: TflNode, tfl: TflBuilder) -> None:
    """[image, class, box] of the boxes that no better one of their class overlaps (ONNX NonMaxSuppression-11).

    TFLite's op suppresses from the threshold on, ONNX above it; it takes equal scores in any order and a box
    without area repeatedly. So its scores are ranks, and boxes without area are moved apart.
    """
    boxes, scores = node.input(0), node.input(1)
    (images, count, _), classes = boxes.shape, scores.shape[1]
    images = images if images is not None else scores.shape[0]
    if images is None or classes is None:
        node.unsupported("an open number of images or classes; fix it with --shape NAME=...")
    if images * classes > _MAX_RUNS:
        node.unsupported(
            f"{images} images by {classes} classes; cut the model before it and suppress outside"
        )
    count = count if count is not None else scores.shape[2]
    number = tfl.value(tfl.size(tfl.tensor(scores), 2)) if count is None else _constant(count)
    most = _max_boxes(node, tfl, number)
    threshold, keeps_all = _threshold(node, tfl)
    is_centred = bool(node.attribute("center_point_box", 0))
    corners = _corners(tfl, boxes) if is_centred else boxes
    limit = tfl.float32(node.input(4)) if node.has_input(4) else None
    found, counts = [], []
    for image in range(images):
        own = _part(tfl, corners, [image], (count, 4))
        apart = _move_flat_boxes(tfl, own, keeps_all, number, is_centred=is_centred)
        for each in range(classes):
            class_scores = _part(tfl, scores, [image, each], (count,))
            chosen, valid = _suppress(tfl, apart, class_scores, number, most, threshold, limit)
            found.append(chosen)
            counts.append(valid)
    node.emit(_rows(tfl, found, counts, most, classes))


def _constant(size: int) -> Value:
    return constant(np.array([size], np.int32))


def _part(tfl: TflBuilder, x: Value, place: list[int], shape: tuple[int | None, ...]) -> Value:
    begin = [*place, *(0 for _ in shape)]
    part = tfl.slice(tfl.tensor(x), begin, [*(1 for _ in place), *shape])
    return tfl.value(tfl.reshape(part, shape))


def _max_boxes(node: TflNode, tfl: TflBuilder, number: Value) -> Value:
    """Return the most boxes to keep of a class, at most all of them: int32 [1]."""
    if not node.has_input(2):
        return _constant(0)
    most = node.input(2)
    if most.constant is not None:
        given = max(0, min(int(most.constant.item()), np.iinfo(np.int32).max))
        if number.constant is not None:
            return _constant(min(given, int(number.constant[0])))
        return tfl.broadcast("minimum", number, _constant(given))
    one = tfl.value(tfl.reshape(tfl.tensor(most), (1,)))
    bounded = tfl.broadcast("minimum", one, tfl.convert(number, one.dtype))
    return tfl.convert(tfl.broadcast("maximum", bounded, 0), np.int32)


def _threshold(node: TflNode, tfl: TflBuilder) -> tuple[Value, Value]:
    """Return the smallest number above the allowed overlap, and whether every overlap is allowed; both of rank 0."""
    if not node.has_input(3):
        return scalar(_TINY, np.float32), scalar(False, bool)
    allowed = node.input(3)
    if allowed.constant is not None:
        number = np.float32(allowed.constant.item())
        least = min(max(float(np.nextafter(number, np.float32(2))), _TINY), 1.0)
        return scalar(least, np.float32), scalar(bool(number >= 1), bool)
    one = tfl.value(tfl.reshape(tfl.tensor(allowed), ()))
    bits = tfl.value(tfl.bitcast(tfl.tensor(one), np.int32))
    above = tfl.value(tfl.bitcast(tfl.tensor(tfl.broadcast("add", bits, 1)), np.float32))
    bounded = tfl.broadcast("minimum", tfl.broadcast("maximum", above, _TINY), 1)
    return bounded, tfl.broadcast("greater_equal", one, 1)


def _corners(tfl: TflBuilder, boxes: Value) -> Value:
    """Turn boxes of centre and size into two opposite corners."""
    tensor, (images, count, _) = tfl.tensor(boxes), boxes.shape
    centre, size = (tfl.slice(tensor, [0, 0, first], [images, count, 2]) for first in (0, 2))
    half = tfl.op("mul", [size, tfl.constant(0.5, np.float32)], tfl.shape_of(size))
    ends = [tfl.op(op, [centre, half], tfl.shape_of(centre)) for op in ("sub", "add")]
    return tfl.value(tfl.op("concatenation", ends, boxes.shape, axis=2))


def _move_flat_boxes(
    tfl: TflBuilder, boxes: Value, keeps_all: Value, number: Value, *, is_centred: bool
) -> Value:
    """Replace those of the boxes [N, 4] that overlap nothing by boxes that lie apart from all others."""
    count = boxes.shape[0]
    tensor = tfl.tensor(boxes)
    ends = [tfl.slice(tensor, [0, first], [count, 2]) for first in (0, 2)]
    extent = tfl.op("sub", ends[::-1], [count, 2])
    # Corners may come in either order; a centre with a negative size overlaps nothing.
    positive = [extent, tfl.constant(0, np.float32)] if is_centred else [extent]
    extent = tfl.op("maximum" if is_centred else "abs", positive, [count, 2])
    area = tfl.op("reduce_prod", [extent, tfl.int32([1])], [count, 1], keep_dims=True)
    flat = tfl.value(tfl.op("less_equal", [area, tfl.constant(0, np.float32)], [count, 1], bool))
    moves = tfl.broadcast("logical_or", flat, keeps_all)
    size = tfl.op("abs", [tensor], [count, 4])
    largest = tfl.op("reduce_max", [size, tfl.int32([0, 1])], [1, 1], keep_dims=True)
    unit = tfl.broadcast("add", tfl.value(largest), 1)
    places = tfl.reshape(_counting(tfl, number, count), [count, 1])
    steps = tfl.broadcast("add", tfl.value(places), tfl.value(places))
    corners = constant(np.array([[2, 2, 3, 3]], np.float32))
    apart = tfl.broadcast("mul", tfl.broadcast("add", steps, corners), unit)
    return tfl.broadcast("select_v2", moves, apart, boxes)


def _counting(tfl: TflBuilder, number: Value, count: int | None) -> Tensor:
    """Return 0, 1, ... as float32."""
    if count is not None:
        return tfl.constant(np.arange(count), np.float32)
    bounds = [tfl.int32(0), tfl.reshape(tfl.tensor(number), ()), tfl.int32(1)]
    return tfl.cast(tfl.op("range", bounds, [None], np.int32), np.float32)


def _suppress(
    tfl: TflBuilder,
    boxes: Value,
    scores: Value,
    number: Value,
    most: Value,
    threshold: Value,
    limit: Value | None,
) -> tuple[Tensor, Tensor]:
    """Return the places of one class's remaining boxes, int32 [most], and how many of them are valid."""
    count, int32 = scores.shape[0], np.dtype(np.int32)
    length = tfl.reshape(tfl.tensor(number), ())
    results = [((count,), scores.dtype), ((count,), int32)]
    best, order = tfl.ops("topk_v2", [tfl.tensor(scores), length], results)
    places = tfl.value(_counting(tfl, number, count))
    rank = tfl.broadcast("sub", tfl.convert(number, np.float32), places)  # from N down to 1
    if limit is not None:
        bound = tfl.value(tfl.reshape(tfl.tensor(limit), ()))
        passes = tfl.broadcast("greater", tfl.value(best), bound)
        rank = tfl.broadcast("select_v2", passes, rank, -1)
    in_order = tfl.op("gather", [tfl.tensor(boxes), order], [count, 4], axis=0, batch_dims=0)
    wanted = int(most.constant[0]) if most.constant is not None else None
    operands = [in_order, tfl.tensor(rank), tfl.reshape(tfl.tensor(most), ())]
    operands += [tfl.tensor(threshold), tfl.constant(0, np.float32)]
    chosen, valid = tfl.ops("non_max_suppression_v4", operands, [((wanted,), int32), ((), int32)])
    return tfl.op("gather", [order, chosen], [wanted], axis=0, batch_dims=0), valid


def _rows(tfl: TflBuilder, found: list[Tensor], counts: list[Tensor], most: Value, classes: int) -> Value:
    """Return [image, class, box] of the remaining boxes, in the order of images and classes."""
    runs, (wanted,) = len(found), tfl.shape_of(found[0])
    boxes = tfl.op("pack", found, [runs, wanted], axis=0, values_count=runs)
    valid = tfl.op("pack", [tfl.reshape(c, [1]) for c in counts], [runs, 1], axis=0, values_count=runs)
    column = tfl.reshape(tfl.cast(_counting(tfl, most, wanted), np.int32), [1, wanted])
    counted = tfl.op("less", [column, valid], [runs, wanted], bool)
    place = tfl.cast(tfl.op("where", [counted], [None, 2], np.int64), np.int32)
    box = tfl.reshape(tfl.op("gather_nd", [boxes, place], [None]), [None, 1])
    run = tfl.slice(place, [0, 0], [None, 1])
    image = tfl.op("floor_div", [run, tfl.int32(classes)], [None, 1])
    first = tfl.op("mul", [image, tfl.int32(classes)], [None, 1])
    rows = [image, tfl.op("sub", [run, first], [None, 1]), box]
    joined = tfl.op("concatenation", rows, [None, 3], axis=1)
    return tfl.value(tfl.cast(joined, np.int64))
