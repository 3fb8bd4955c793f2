"""Operations that move elements: on at most four axes, the first of size 1."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from onnxport.converters.tflite.fit.axes import (
    MOST,
    around,
    group_sizes,
    merge_axes,
    permute,
    reshape,
    with_rank,
)
from onnxport.converters.tflite.fit.operation import Sizes, TflOp, elements, maker, sizes
from onnxport.converters.tflite.tensors import Tensor, TensorBuilder
from onnxport.core.arrays import Array


def as_reshape(op: TflOp) -> Tensor:
    return reshape(op.tfl, op.x, op.out)


def through_integers(op: TflOp) -> Tensor:
    """Emit the same operation on int32 in place of bool."""
    tfl = op.tfl
    operands = [as_integers(tfl, each) if tfl.dtype_of(each).kind == "b" else each for each in op.operands]
    moved = tfl.op(op.name, operands, op.out, np.int32, **op.attributes())
    return tfl.op("cast", [moved], op.out, bool)


def as_integers(tfl: TensorBuilder, flags: Tensor) -> Tensor:
    """Return bool as int32."""
    found = elements(flags)
    if found is not None:
        return tfl.constant(found, np.int32)
    return tfl.op("cast", [flags], sizes(flags), np.int32)


def join_reshapes(op: TflOp) -> Tensor:
    """Replace two RESHAPE by one, that of a constant by none."""
    made_by = maker(op.x)
    is_reshaped = made_by is not None and made_by.name == "tfl.reshape"
    return reshape(op.tfl, made_by.operands[0] if made_by is not None and is_reshaped else op.x, op.out)


def transpose(op: TflOp) -> Tensor:
    return permute(op.tfl, op.x, require(op, 1).tolist())


def tile(op: TflOp) -> Tensor:
    """Tile axis by axis where the counts' axes do not merge to four."""
    return repeat(op.tfl, op.x, require(op, 1).tolist())


def broadcast_to(op: TflOp) -> Tensor:
    return expand(op.tfl, op.x, op.out)


def expand(tfl: TensorBuilder, tensor: Tensor, shape: Sizes) -> Tensor:
    """Repeat the axes of size 1 to `shape`."""
    ranked = with_rank(sizes(tensor), len(shape))
    counts = [size // own if own else 1 for size, own in zip(shape, ranked, strict=True)]
    return repeat(tfl, reshape(tfl, tensor, ranked), counts)


def repeat(tfl: TensorBuilder, tensor: Tensor, counts: Sequence[int]) -> Tensor:
    shape = sizes(tensor)
    result = tuple(size * count for size, count in zip(shape, counts, strict=True))
    if result == shape:
        return tensor
    constant = elements(tensor)
    if constant is not None:
        return tfl.constant(np.tile(constant, counts))
    for axis, count in enumerate(counts):
        if count == 1:
            continue
        here = sizes(tensor)
        before, size, behind = around(here, axis)[1:]
        # Of an axis of size 1 what lies behind is repeated.
        flat = (1, before, 1, size * behind)
        tensor = tfl.op(
            "tile",
            [reshape(tfl, tensor, flat), tfl.int32([1, 1, count, 1])],
            (1, before, count, size * behind),
        )
        tensor = reshape(tfl, tensor, (*here[:axis], size * count, *here[axis + 1 :]))
    return tensor


# ---- slices


def slice_(op: TflOp) -> Tensor:
    begin, size = require(op, 1), require(op, 2)
    size = np.where(size < 0, np.array(op.shape) - begin, size)
    ranges = [range(int(b), int(b + s)) for b, s in zip(begin, size, strict=True)]
    return reshape(op.tfl, take(op.tfl, op.x, ranges), op.out)


def strided_slice(op: TflOp) -> Tensor:
    """Emit (STRIDED_)SLICE for positive steps, REVERSE_V2 for negative ones, RESHAPE for dropped and new axes."""
    return reshape(op.tfl, take(op.tfl, op.x, slice_ranges(op)), op.out)


def slice_ranges(op: TflOp) -> list[range]:
    """Return what STRIDED_SLICE takes along each axis of its operand."""
    begin, end, steps = (require(op, place).tolist() for place in (1, 2, 3))
    masks = {name: op.attribute(name, 0) for name in ("begin_mask", "end_mask", "shrink_axis_mask")}
    ellipsis, added = op.attribute("ellipsis_mask", 0), op.attribute("new_axis_mask", 0)
    own = sum(1 for place in range(len(begin)) if not (ellipsis | added) >> place & 1)
    ranges: list[range] = []
    for place, (first, last, step) in enumerate(zip(begin, end, steps, strict=True)):
        if ellipsis >> place & 1:
            ranges += [range(size) for size in op.shape[len(ranges) : len(ranges) + len(op.shape) - own]]
        elif not added >> place & 1:
            size = op.shape[len(ranges)]
            if masks["shrink_axis_mask"] >> place & 1:
                first %= size
                ranges.append(range(first, first + 1))
                continue
            bounds = slice(
                None if masks["begin_mask"] >> place & 1 else first,
                None if masks["end_mask"] >> place & 1 else last,
                step,
            )
            ranges.append(range(*bounds.indices(size)))
    return ranges + [range(size) for size in op.shape[len(ranges) :]]


def take(tfl: TensorBuilder, tensor: Tensor, ranges: Sequence[range]) -> Tensor:
    """Return the elements of a tensor at `ranges`."""
    shape = sizes(tensor)
    result = tuple(map(len, ranges))
    whole = [each == range(size) for each, size in zip(ranges, shape, strict=True)]
    if all(whole):
        return tensor
    groups = merge_axes(shape, [-1 if w else axis for axis, w in enumerate(whole)])
    if len(groups) > MOST or any(not whole[a] and shape[a] == 1 for a in range(len(shape))):
        for axis, each in enumerate(ranges):
            if not whole[axis]:
                here = sizes(tensor)
                flat = around(here, axis)
                taken = _take_of_four(
                    tfl, reshape(tfl, tensor, flat), [*map(range, flat[:2]), each, range(flat[3])]
                )
                tensor = reshape(tfl, taken, (*here[:axis], len(each), *here[axis + 1 :]))
        return tensor
    flat = group_sizes(shape, groups)
    taken_ranges = []
    for group, size in zip(groups, flat, strict=True):
        part = next((ranges[axis] for axis in group if not whole[axis]), range(size))
        taken_ranges.append(part)
    offset = MOST - len(flat)
    taken = _take_of_four(tfl, reshape(tfl, tensor, with_rank(flat)), [range(1)] * offset + taken_ranges)
    return reshape(tfl, taken, result)


def _take_of_four(tfl: TensorBuilder, tensor: Tensor, ranges: Sequence[range]) -> Tensor:
    """Return the elements of a tensor of four axes."""
    forward = [each if each.step > 0 else each[::-1] for each in ranges]
    result = tuple(map(len, forward))
    if all(each.step == 1 or len(each) == 1 for each in forward):
        tensor = tfl.slice(tensor, [each.start for each in forward], result)
    else:
        bounds = [(each.start, each[-1] + 1, each.step) for each in forward]
        tensor = tfl.strided_slice(tensor, bounds, result)
    for axis, each in enumerate(ranges):
        if each.step < 0 and len(each) > 1:
            tensor = reverse_along(tfl, tensor, axis)
    return tensor


def reverse(op: TflOp) -> Tensor:
    """Reverse axis by axis, each as the third of four."""
    tensor = op.x
    for axis in require(op, 1).tolist():
        tensor = reverse_along(op.tfl, tensor, axis)
    return tensor


def reverse_along(tfl: TensorBuilder, tensor: Tensor, axis: int) -> Tensor:
    shape = sizes(tensor)
    flat = around(shape, axis)
    result = tfl.op("reverse_v2", [reshape(tfl, tensor, flat), tfl.int32([2])], flat)
    return reshape(tfl, result, shape)


# ---- joining and parting


def concatenate(op: TflOp) -> Tensor:
    """Concatenate along the third of four axes."""
    axis = op.attribute("axis") % len(op.out)
    return joined(op.tfl, op.operands, axis, op.out)


def joined(tfl: TensorBuilder, parts: Sequence[Tensor], axis: int, result: Sizes) -> Tensor:
    flat = [reshape(tfl, part, around(sizes(part), axis)) for part in parts]
    return reshape(tfl, tfl.concatenate(flat, 2), result)


def pack(op: TflOp) -> Tensor:
    """Concatenate the operands, each with one more axis."""
    axis = op.attribute("axis") % len(op.out)
    flat = (1, prod(op.out[:axis]), 1, prod(op.out[axis + 1 :]))
    parts = [reshape(op.tfl, each, flat) for each in op.operands]
    return reshape(op.tfl, op.tfl.concatenate(parts, 2), op.out)


def unpack(op: TflOp) -> list[Tensor]:
    axis = op.attribute("axis") % len(op.shape)
    return _parts(op, op.x, axis, [1] * op.shape[axis])


def split(op: TflOp) -> list[Tensor]:
    axis = int(require(op, 0)) % len(sizes(op.operands[1]))
    count = len(op.operation.results)
    return _parts(op, op.operands[1], axis, [sizes(op.operands[1])[axis] // count] * count)


def split_v(op: TflOp) -> list[Tensor]:
    axis = int(require(op, 2)) % len(op.shape)
    return _parts(op, op.x, axis, [sizes(each)[axis] for each in op.operation.results])


def _parts(op: TflOp, tensor: Tensor, axis: int, counts: Sequence[int]) -> list[Tensor]:
    flat = around(sizes(tensor), axis)
    source, start, parts = reshape(op.tfl, tensor, flat), 0, []
    for count, result in zip(counts, op.operation.results, strict=True):
        part = op.tfl.slice(source, [0, 0, start, 0], [*flat[:2], count, flat[3]])
        parts.append(reshape(op.tfl, part, sizes(result)))
        start += count
    return parts


# ---- padding


def pad(op: TflOp) -> Tensor:
    """Pad at most three merged axes at once, behind one of size 1, else one after another."""
    tfl, amounts = op.tfl, require(op, 1)
    fill = op.operands[2] if len(op.operands) > 2 else None
    padded = [bool(row.any()) for row in amounts]
    groups = merge_axes(op.shape, [axis if p else -1 for axis, p in enumerate(padded)])
    # Beside a padded axis a group has axes of size 1 only.
    alone = all(
        not any(padded[a] for a in g) or sum(padded[a] or op.shape[a] != 1 for a in g) == 1 for g in groups
    )
    if alone and len(groups) < MOST:
        sums = np.stack([amounts[list(g)].sum(axis=0) for g in groups])
        return _pad_groups(tfl, op.x, group_sizes(op.shape, groups), sums, fill, op.out)
    tensor = op.x
    for axis, (before, behind) in enumerate(amounts.tolist()):
        if before or behind:
            here = sizes(tensor)
            flat = around(here, axis)[1:]
            result = (*here[:axis], here[axis] + before + behind, *here[axis + 1 :])
            tensor = _pad_groups(
                tfl, tensor, flat, np.array([[0, 0], [before, behind], [0, 0]]), fill, result
            )
    return tensor


def _pad_groups(
    tfl: TensorBuilder, tensor: Tensor, flat: Sizes, amounts: Array, fill: Tensor | None, result: Sizes
) -> Tensor:
    before, behind = (np.concatenate([[0] * (MOST - len(flat)), amounts[:, side]]) for side in (0, 1))
    padded = tfl.pad(
        reshape(tfl, tensor, with_rank(flat)), [int(n) for n in before], [int(n) for n in behind], fill
    )
    return reshape(tfl, padded, result)


def mirror_pad(op: TflOp) -> Tensor:
    """Concatenate each axis with its reversed ends."""
    tfl, tensor = op.tfl, op.x
    first = 1 if "REFLECT" in op.attribute("mode") else 0
    for axis, (before, behind) in enumerate(require(op, 1).tolist()):
        if not before and not behind:
            continue
        here = sizes(tensor)
        flat, count = around(here, axis), here[axis]
        source, parts = reshape(tfl, tensor, flat), []
        whole = [*map(range, flat[:2]), range(count), range(flat[3])]
        for taken in (
            range(first + before - 1, first - 1, -1),
            range(count),
            range(count - 1 - first, count - 1 - first - behind, -1),
        ):
            if len(taken) == count and taken.step > 0:
                parts.append(source)
            elif taken:
                parts.append(_take_of_four(tfl, source, [*whole[:2], taken, whole[3]]))
        shape = (*here[:axis], count + before + behind, *here[axis + 1 :])
        tensor = reshape(tfl, tfl.concatenate(parts, 2), shape)
    return tensor


# ---- blocks


def space_to_depth(op: TflOp) -> Tensor:
    """Compute on the batch as part of the height, of which no block crosses an image's end."""
    batch, height, *rest = op.shape
    out_batch, out_height, *out_rest = op.out
    result = op.again(
        [reshape(op.tfl, op.x, (1, batch * height, *rest))], (1, out_batch * out_height, *out_rest)
    )
    return reshape(op.tfl, result, op.out)


def require(op: TflOp, index: int) -> Array:
    """Return a constant operand's elements; the rule's condition has seen that it is one."""
    found = op.constant(index)
    assert found is not None
    return found
