"""Ops that rearrange elements without computing on them: Reshape and its kin, Transpose, Concat, Split, Pad."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from litert_converter.mlir import ir

from onnxport.converters.tflite.builder import (
    Scrambled,
    Tensor,
    TflBuilder,
    TflNode,
    Value,
    constant_of,
    optional_constant,
)
from onnxport.converters.tflite.layout import (
    Permutation,
    Shape,
    after_transpose,
    channels_last,
    identity,
    normalized,
    permuted,
    reshape_in_place,
)
from onnxport.converters.tflite.registry import lower

# Stands for an open dimension that a reshape leaves as it is; a prime that no real product hits.
_OPEN = 1_000_003


def reshaped(tfl: TflBuilder, x: Value, shape: Shape) -> Value:
    """`x` with other dimensions, at most one of them open, in whatever axis order needs no transpose."""
    if x.constant is not None:
        return Value(shape, x.dtype, constant=x.constant.reshape([-1 if d is None else d for d in shape]))
    before, after = _closed(x.shape, shape)
    if before is not None and after is not None and x.order != identity(x.rank):
        order, source = _order_in_place(x, before, after)
        if order is not None:
            tensor = tfl.reshape(tfl.tensor(x, source), permuted(shape, order))
            return tfl.computed(tensor, x.dtype, order)
        flattened = _flattened(tfl, x, before, shape)
        if flattened is not None:
            return flattened
    return tfl.computed(tfl.reshape(tfl.tensor(x), shape), x.dtype)


def _closed(before: Shape, after: Shape) -> tuple[Sequence[int] | None, Sequence[int] | None]:
    """Both shapes with an open dimension that stays itself replaced by _OPEN; None where one does not."""
    if 0 in before or 0 in after or before.count(None) != after.count(None) or before.count(None) > 1:
        return None, None
    if prod(d for d in before if d is not None) != prod(d for d in after if d is not None):
        return None, None
    return [d or _OPEN for d in before], [d or _OPEN for d in after]


def _order_in_place(
    x: Value, before: Sequence[int], after: Sequence[int]
) -> tuple[Permutation | None, Permutation]:
    """The result's axis order if a copy of x, or x with some axes swapped, can be reshaped as it lies."""
    for source in x.copies:
        order = reshape_in_place(before, after, source)
        if order is not None:
            return order, source
    return None, x.order


def _flattened(tfl: TflBuilder, x: Value, before: Sequence[int], shape: Shape) -> Value | None:
    """[N, C, spatial...] flattened to [N, K] while it lies in another order: see builder.Scrambled."""
    order = x.order
    if len(shape) != 2 or order[0] != 0 or before[0] != (shape[0] or _OPEN) or shape[1] is None:
        return None
    logical = np.arange(shape[1]).reshape(before[1:])
    index = logical.transpose([axis - 1 for axis in order[1:]]).reshape(-1)
    tensor = tfl.reshape(x.copies[order], shape)
    return Value(
        shape,
        x.dtype,
        make=lambda: tfl.reshape(tfl.tensor(x), shape),
        scrambled=Scrambled(tensor, index),
    )


@lower("Reshape")
def reshape(node: TflNode, tfl: TflBuilder) -> None:
    """New dimensions for the same elements (ONNX Reshape-21)."""
    x, wanted = node.input(0), node.input(1)
    node.attribute("allowzero", 0)  # shape inference has resolved zeros already
    shape = node.output_shape()
    if shape.count(None) <= 1:
        node.emit(reshaped(tfl, x, shape))
        return
    if wanted.constant is not None:
        node.unsupported("leaves more than one dimension open; fix the input's size with --shape NAME=...")
    target = tfl.op("cast", [tfl.tensor(wanted)], wanted.shape, np.int32)
    node.emit(tfl.computed(tfl.op("reshape", [tfl.tensor(x), target], shape, x.dtype), x.dtype))


@lower("Flatten")
def flatten(node: TflNode, tfl: TflBuilder) -> None:
    """To a matrix: the axes before `axis` become rows, the others columns (ONNX Flatten-21)."""
    node.attribute("axis", 1)
    shape = node.output_shape()
    if shape.count(None) > 1:
        node.unsupported("leaves more than one dimension open; fix the input's size with --shape NAME=...")
    node.emit(reshaped(tfl, node.x, shape))


@lower("Squeeze")
def squeeze(node: TflNode, tfl: TflBuilder) -> None:
    """Takes axes of size 1 out (ONNX Squeeze-21)."""
    x = node.x
    axes = optional_constant(node, 1, "axes")
    gone = (
        [i for i, dim in enumerate(x.shape) if dim == 1]
        if axes is None
        else [normalized(int(a), x.rank) for a in axes.reshape(-1)]
    )
    if x.constant is not None:
        shape = tuple(dim for i, dim in enumerate(x.shape) if i not in gone)
        return node.emit(reshaped(tfl, x, shape))
    order = x.order if x.copies else identity(x.rank)
    tensor = tfl.tensor(x, order)
    for physical in sorted((order.index(axis) for axis in gone), reverse=True):
        tensor = tfl.without_unit_axis(tensor, physical)
    left = [axis for axis in range(x.rank) if axis not in gone]
    node.emit(tfl.computed(tensor, x.dtype, tuple(left.index(a) for a in order if a not in gone)))
    return None


@lower("Unsqueeze")
def unsqueeze(node: TflNode, tfl: TflBuilder) -> None:
    """Puts axes of size 1 in (ONNX Unsqueeze-21); they lie last, where they hurt no axis order."""
    x, axes = node.x, constant_of(node, 1, "axes").reshape(-1)
    rank = x.rank + len(axes)
    new = sorted(normalized(int(axis), rank) for axis in axes)
    old = [axis for axis in range(rank) if axis not in new]
    if x.constant is not None:
        shape = [1] * rank
        for axis, dim in zip(old, x.constant.shape, strict=True):
            shape[axis] = dim
        return node.emit(Value(shape, x.dtype, constant=x.constant.reshape(shape)))
    source = x.order if x.copies else identity(x.rank)
    tensor = tfl.tensor(x, source)
    order = [old[axis] for axis in source]
    for axis in new:
        # Beside the axis it follows logically: the natural place when nothing is permuted.
        place = order.index(axis - 1) + 1 if axis - 1 in order else 0
        tensor = tfl.with_unit_axis(tensor, place)
        order.insert(place, axis)
    node.emit(tfl.computed(tensor, x.dtype, tuple(order)))
    return None


@lower("Transpose")
def transpose(node: TflNode, tfl: TflBuilder) -> None:
    """Renames the axes; no data moves until an op asks for another order."""
    x = node.x
    perm = tuple(node.attribute("perm", tuple(reversed(range(x.rank)))))
    shape = permuted(x.shape, perm)
    if x.constant is not None:
        return node.emit(Value(shape, x.dtype, constant=np.transpose(x.constant, perm)))
    if not x.copies:
        tfl.tensor(x)
    copies = {after_transpose(order, perm): tensor for order, tensor in x.copies.items()}
    node.emit(Value(shape, x.dtype, copies=copies))
    return None


@lower("Concat")
def concat(node: TflNode, tfl: TflBuilder) -> None:
    """Joins values along an axis (ONNX Concat-13)."""
    values = node.rest()
    rank = values[0].rank
    axis = normalized(node.attribute("axis"), rank)
    order = tfl.common_order(*values)
    sizes = [value.shape[axis] for value in values]
    shape = list(node.output_shape())
    shape[axis] = None if None in sizes else sum(size for size in sizes if size is not None)
    result = tfl.op(
        "concatenation",
        [tfl.tensor(value, order) for value in values],
        permuted(shape, order),
        values[0].dtype,
        axis=order.index(axis),
        fused_activation_function="NONE",
    )
    node.emit(tfl.computed(result, values[0].dtype, order))


@lower("Split")
def split(node: TflNode, tfl: TflBuilder) -> None:
    """Cuts a value along an axis (ONNX Split-18); sizes default to equal parts, the last one smaller."""
    x = node.x
    axis = normalized(node.attribute("axis", 0), x.rank)
    sizes = optional_constant(node, 1, "the split sizes")
    count = node.attribute("num_outputs", node.output_count)
    length = x.shape[axis]
    if sizes is None:
        if length is None:
            node.unsupported("splits an open dimension; fix the input's size with --shape NAME=...")
        part = -(-length // count)
        sizes = np.array([min(part, length - i * part) for i in range(count)])
    order = tfl.common_order(x)
    tensor, shape = tfl.tensor(x, order), permuted(x.shape, order)
    physical, start = order.index(axis), 0
    for index, size in enumerate(sizes.tolist()):
        begin = [start if i == physical else 0 for i in range(x.rank)]
        part_shape = [size if i == physical else dim for i, dim in enumerate(shape)]
        node.emit(tfl.computed(tfl.slice(tensor, begin, part_shape), x.dtype, order), index)
        start += size


@lower("Pad")
def pad(node: TflNode, tfl: TflBuilder) -> None:
    """Pads axes by a constant or by reflection (ONNX Pad-21)."""
    x = node.x
    amounts = constant_of(node, 1, "the amounts of padding").reshape(2, -1)
    fill = optional_constant(node, 2, "the padding's value")
    axes = optional_constant(node, 3, "axes")
    mode = node.attribute("mode", "constant")
    targets = range(x.rank) if axes is None else [normalized(int(a), x.rank) for a in axes]
    before, after = [0] * x.rank, [0] * x.rank
    for column, axis in enumerate(targets):
        before[axis], after[axis] = int(amounts[0, column]), int(amounts[1, column])
    if min(*before, *after, 0) < 0:
        node.unsupported("negative amounts of padding; use Slice")
    order = tfl.common_order(x)
    tensor = tfl.tensor(x, order)
    first, last = permuted(before, order), permuted(after, order)
    if mode == "constant":
        value = 0.0 if fill is None else float(fill.item())
        if x.dtype != np.float32 and value:
            node.unsupported(f"a value other than 0 for {x.dtype} elements")
        result = tfl.pad(tensor, first, last, value)  # type: ignore[arg-type]
    elif mode == "reflect":
        result = _mirror_pad(tfl, tensor, first, last)  # type: ignore[arg-type]
    else:
        node.unsupported(f"mode {mode!r}; TFLite pads by a constant or by reflection")
    node.emit(tfl.computed(result, x.dtype, order))


def _mirror_pad(tfl: TflBuilder, tensor: Tensor, before: Sequence[int], after: Sequence[int]) -> Tensor:
    shape = [
        None if dim is None else dim + b + a
        for dim, b, a in zip(tfl.shape_of(tensor), before, after, strict=True)
    ]
    amounts = tfl.int32(np.stack([before, after], axis=1))
    mode = ir.Attribute.parse("#tfl<mirror_pad_attr REFLECT>")
    return tfl.op("mirror_pad", [tensor, amounts], shape, tfl.element_of(tensor), mode=mode)


@lower("Expand")
def expand(node: TflNode, tfl: TflBuilder) -> None:
    """Broadcasts to a shape (ONNX Expand-13)."""
    x, wanted = node.input(0), node.input(1)
    shape = node.output_shape()
    if None not in shape:
        target = tfl.int32([dim or 0 for dim in shape])
    elif wanted.constant is not None:
        node.unsupported("broadcasts an open dimension; fix the input's size with --shape NAME=...")
    else:
        target = _expand_target(tfl, x, wanted, len(shape))
    operand = tfl.aligned(x, identity(len(shape)))
    node.emit(tfl.computed(tfl.op("broadcast_to", [operand, target], shape, x.dtype), x.dtype))


def _expand_target(tfl: TflBuilder, x: Value, wanted: Value, rank: int) -> Tensor:
    """ONNX broadcasts both ways, TFLite one way: the target is the larger of both shapes, computed at run time."""
    own = tfl.op("shape", [tfl.aligned(x, identity(rank))], [rank], np.int32)
    asked = tfl.op("cast", [tfl.tensor(wanted)], wanted.shape, np.int32)
    missing = rank - (wanted.shape[0] or 0)
    if missing:
        ones = tfl.int32([1] * missing)
        asked = tfl.op(
            "concatenation", [ones, asked], [rank], np.int32, axis=0, fused_activation_function="NONE"
        )
    return tfl.op("maximum", [own, asked], [rank], np.int32)


@lower("Shape")
def shape_of(node: TflNode, tfl: TflBuilder) -> None:
    """The dimensions from `start` to `end` as int64 (ONNX Shape-21)."""
    x = node.x
    start, end = node.attribute("start", 0), node.attribute("end", x.rank)
    first, last, _ = slice(start, end).indices(x.rank)
    tensor = tfl.op("shape", [tfl.tensor(x)], [x.rank], np.int64, out_type=tfl.type_attribute(np.int64))
    node.emit(tfl.computed(tfl.slice(tensor, [first], [max(last - first, 0)]), np.int64))


@lower("DepthToSpace")
def depth_to_space(node: TflNode, tfl: TflBuilder) -> None:
    """Moves channels into blocks of space (ONNX DepthToSpace-13)."""
    x, block = node.x, node.attribute("blocksize")
    if node.attribute("mode", "DCR") != "DCR":
        node.unsupported("mode CRD; TFLite's DEPTH_TO_SPACE orders channels as DCR")
    order = channels_last(4)
    shape = permuted(node.output_shape(), order)
    result = tfl.op("depth_to_space", [tfl.tensor(x, order)], shape, x.dtype, block_size=block)
    node.emit(tfl.computed(result, x.dtype, order))
