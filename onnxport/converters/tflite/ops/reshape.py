"""Reshape, Flatten, Squeeze, Unsqueeze, Transpose, DepthToSpace and SpaceToDepth."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from onnxport.converters.shape_arithmetic import run_time_axes, squeeze_table, squeezed_axes
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.formulas import Integers, axis_table
from onnxport.converters.tflite.layout import (
    Permutation,
    Shape,
    after_transpose,
    channels_last,
    identity,
    normalize_axis,
    permute,
    reshape_groups,
    reshape_in_place,
    without_axes,
)
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Scrambled, Value, constant

# Stands for an open dimension that a reshape leaves as it is; a prime that no real product hits.
_OPEN = 1_000_003


def reshape(tfl: TflBuilder, x: Value, shape: Shape) -> Value:
    """Reshape `x` in an axis order that needs no transpose; at most one dimension is open."""
    if x.constant is not None:
        return constant(x.constant.reshape([-1 if d is None else d for d in shape]))
    before, after = _close_shapes(x.shape, shape)
    if before is not None and after is not None and x.order != identity(x.rank):
        orders = list(x.copies)
        if all(reshape_in_place(before, after, source) is None for source in orders):
            flattened = _flatten(tfl, x, before, shape)
            if flattened is not None:
                return flattened
            # Only images stay permuted behind it; matrices and sequences are wanted in ONNX's order next.
            orders = [(_grouped_order(x, before, after) if len(after) >= 4 else None) or x.order]
        for source in orders:
            order = reshape_in_place(before, after, source)
            if order is not None:
                return tfl.value(tfl.reshape(tfl.tensor(x, source), permute(shape, order)), order)
    return tfl.value(tfl.reshape(tfl.tensor(x), shape))


def _close_shapes(before: Shape, after: Shape) -> tuple[Sequence[int] | None, Sequence[int] | None]:
    """Return both shapes with _OPEN for an open dimension that stays; None where it does not stay."""
    if 0 in before or 0 in after or before.count(None) != after.count(None) or before.count(None) > 1:
        return None, None
    if prod(d or 1 for d in before) != prod(d or 1 for d in after):
        return None, None
    return [d or _OPEN for d in before], [d or _OPEN for d in after]


def _grouped_order(x: Value, before: Sequence[int], after: Sequence[int]) -> Permutation | None:
    """Return the order nearest to x's own in which every reshape group lies together.

    A group goes where its last axis lies: what is contiguous stays so. A channel shuffle swaps two axes inside the
    channels-last tensor, which needs no trip to channels first; attention's [N, heads, H*W, size] becomes channels
    last, or a sequence, at once.
    """
    groups = reshape_groups(before, after)
    if groups is None:
        return None
    places: list[int] = []
    for ins, _ in groups:
        # A group of ones follows the group before it.
        place = places[-1] if places else -1
        places.append(max((x.order.index(axis) for axis in ins if before[axis] != 1), default=place))
    ordered = sorted(range(len(groups)), key=places.__getitem__)
    return tuple(axis for number in ordered for axis in groups[number][0])


def _flatten(tfl: TflBuilder, x: Value, before: Sequence[int], shape: Shape) -> Value | None:
    """Return [N, C, spatial...] flattened to [N, K] while it lies in another order: see builder.Scrambled."""
    order = x.order
    if len(shape) != 2 or order[0] != 0 or before[0] != (shape[0] or _OPEN) or shape[1] is None:
        return None
    logical = np.arange(shape[1]).reshape(before[1:])
    index = logical.transpose([axis - 1 for axis in order[1:]]).reshape(-1)
    tensor = tfl.reshape(x.copies[order], shape)
    return Value(
        shape, x.dtype, make=lambda: tfl.reshape(tfl.tensor(x), shape), scrambled=Scrambled(tensor, index)
    )


@lower("Reshape")
def lower_reshape(node: TflNode, tfl: TflBuilder) -> None:
    """Change the dimensions (ONNX Reshape-21)."""
    x, wanted = node.input(0), node.input(1)
    keeps_zeros = bool(node.attribute("allowzero", 0))
    shape = node.output_shape()
    if shape.count(None) == 0 or (shape.count(None) == 1 and 0 not in shape):
        node.emit(reshape(tfl, x, shape))
        return
    if wanted.constant is not None:
        target = _constant_target(node, tfl, wanted.constant.tolist(), keeps_zeros)
    else:
        target = _run_time_target(tfl, x, wanted, keeps_zeros)
    node.emit(tfl.value(tfl.op("reshape", [tfl.tensor(x), target], shape)))


def _constant_target(node: TflNode, tfl: TflBuilder, wanted: list[int], keeps_zeros: bool) -> Tensor:
    """Return the target with a 0 replaced by the input's own size, read at run time."""
    x = node.x
    if keeps_zeros and 0 in wanted:
        node.unsupported("allowzero with a size of 0 and open dimensions")
    parts = []
    for axis, size in enumerate(wanted):
        known = size or x.shape[axis]
        parts.append(tfl.size(tfl.tensor(x), axis) if known is None else tfl.int32([known]))
    return tfl.op("concatenation", parts, [len(parts)], axis=0)


def _run_time_target(tfl: TflBuilder, x: Value, wanted: Value, keeps_zeros: bool) -> Tensor:
    """Return the target as int32, a 0 in it replaced by the input's own size."""
    target = tfl.tensor(tfl.convert(wanted, np.int32))
    rank = wanted.shape[0]
    if keeps_zeros or rank is None:
        return target
    common = min(rank, x.rank)
    own = tfl.pad(tfl.slice(tfl.run_time_shape(x), [0], [common]), [0], [rank - common])
    is_zero = tfl.op("equal", [target, tfl.int32(0)], [rank], bool)
    return tfl.op("select_v2", [is_zero, own, target], [rank])


@lower("Flatten")
def flatten(node: TflNode, tfl: TflBuilder) -> None:
    """Flatten to a matrix: the axes before `axis` become rows, the others columns (ONNX Flatten-21)."""
    x, shape = node.x, node.output_shape()
    axis = normalize_axis(node.attribute("axis", 1), x.rank)
    if shape.count(None) < 2:
        node.emit(reshape(tfl, x, shape))
        return
    actual = tfl.run_time_shape(x)
    rows = tfl.op("reduce_prod", [tfl.slice(actual, [0], [axis]), tfl.int32([0])], [1], keep_dims=True)
    target = tfl.op("concatenation", [rows, tfl.int32([-1])], [2], axis=0)
    node.emit(tfl.value(tfl.op("reshape", [tfl.tensor(x), target], shape)))


@lower("Squeeze")
def squeeze(node: TflNode, tfl: TflBuilder) -> None:
    """Remove axes of size 1 (ONNX Squeeze-21)."""
    x, axes = node.x, node.optional(1)
    if axes is not None and axes.constant is None:
        node.emit(_squeeze_at_run_time(node, tfl, axes))
        return
    named = None if axes is None or axes.constant is None else axes.constant.reshape(-1).tolist()
    gone = squeezed_axes(node, x.shape) if named is None else [normalize_axis(a, x.rank) for a in named]
    shape = tuple(dim for i, dim in enumerate(x.shape) if i not in gone)
    if x.constant is not None:
        node.emit(reshape(tfl, x, shape))
        return
    order = tfl.common_order(x)
    tensor = tfl.tensor(x, order)
    for physical in sorted((order.index(axis) for axis in gone), reverse=True):
        tensor = tfl.without_unit_axis(tensor, physical)
    node.emit(tfl.value(tensor, without_axes(order, gone)))


def _squeeze_at_run_time(node: TflNode, tfl: TflBuilder, axes: Value) -> Value:
    rank, count = node.x.rank, run_time_axes(node, axes.shape)
    kept = Integers(tfl, tfl.int32(1)) - axis_table(tfl, axes, rank).sum(1)
    table = squeeze_table(kept, rank - count)
    sizes = (Integers(tfl, tfl.run_time_shape(node.x)).column() * table).sum(0)
    return tfl.value(tfl.op("reshape", [tfl.tensor(node.x), sizes.tensor], [None] * (rank - count)))


@lower("Unsqueeze")
def unsqueeze(node: TflNode, tfl: TflBuilder) -> None:
    """Insert axes of size 1 (ONNX Unsqueeze-21), beside the axis that each follows."""
    x, named = node.x, node.input(1)
    if named.constant is None:
        node.emit(_unsqueeze_at_run_time(node, tfl, named))
        return
    axes = named.constant.reshape(-1)
    rank = x.rank + len(axes)
    new = sorted(normalize_axis(int(axis), rank) for axis in axes)
    old = [axis for axis in range(rank) if axis not in new]
    if x.constant is not None:
        node.emit(constant(np.expand_dims(x.constant, tuple(new))))
        return
    source = tfl.common_order(x)
    tensor = tfl.tensor(x, source)
    order = [old[axis] for axis in source]
    for axis in new:
        # Beside the axis it follows logically: the natural place when nothing is permuted.
        place = order.index(axis - 1) + 1 if axis - 1 in order else 0
        tensor = tfl.with_unit_axis(tensor, place)
        order.insert(place, axis)
    node.emit(tfl.value(tensor, tuple(order)))


def _unsqueeze_at_run_time(node: TflNode, tfl: TflBuilder, axes: Value) -> Value:
    rank = node.x.rank + run_time_axes(node, axes.shape)
    new = axis_table(tfl, axes, rank).sum(1)
    places = (Integers(tfl, tfl.int32(np.arange(1, rank + 1))) - new.running_sum() - 1).maximum(0)
    own = tfl.run_time_shape(node.x) if node.x.rank else tfl.int32([1])
    sizes = Integers(tfl, tfl.op("gather", [own, places.tensor], [rank], axis=0, batch_dims=0))
    target = new.equals(1).where(1, sizes)
    return tfl.value(tfl.op("reshape", [tfl.tensor(node.x), target.tensor], [None] * rank))


@lower("Transpose")
def lower_transpose(node: TflNode, tfl: TflBuilder) -> None:
    """Rename the axes; no data moves until an op needs another order (ONNX Transpose-21)."""
    perm = tuple(node.attribute("perm", tuple(reversed(range(node.x.rank)))))
    node.emit(transpose(tfl, node.x, perm))


def transpose(tfl: TflBuilder, x: Value, perm: Permutation) -> Value:
    """Make axis perm[i] of `x` axis i."""
    if x.constant is not None:
        return constant(np.transpose(x.constant, perm))
    if not x.copies:
        tfl.tensor(x)
    copies = {after_transpose(order, perm): tensor for order, tensor in x.copies.items()}
    return Value(permute(x.shape, perm), x.dtype, copies=copies)


@lower("DepthToSpace", "SpaceToDepth")
def move_blocks(node: TflNode, tfl: TflBuilder) -> None:
    """Move channels into blocks of space or back (ONNX DepthToSpace-13, SpaceToDepth-13).

    TFLite counts channels as ONNX's mode DCR does, block before channel; those of CRD are put in that order.
    """
    x, block, order = node.x, node.attribute("blocksize"), channels_last(4)
    name = {"DepthToSpace": "depth_to_space", "SpaceToDepth": "space_to_depth"}[node.op]
    tensor = tfl.tensor(x, order)
    if node.op == "DepthToSpace" and node.attribute("mode", "DCR") == "CRD":
        channels = x.shape[1]
        if channels is None:
            node.unsupported("an open number of channels; fix the input's size with --shape NAME=...")
        source = np.arange(channels).reshape(-1, block, block).transpose(1, 2, 0).reshape(-1)
        tensor = tfl.op("gather", [tensor, tfl.int32(source)], tfl.shape_of(tensor), axis=3, batch_dims=0)
    shape = permute(node.output_shape(), order)
    node.emit(tfl.value(tfl.op(name, [tensor], shape, block_size=block), order))
