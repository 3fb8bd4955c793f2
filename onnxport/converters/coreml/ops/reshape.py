"""Identity, Reshape, Flatten, Squeeze, Unsqueeze and Transpose; channels against blocks of space."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder, MilNode
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.shapes import high_rank
from onnxport.converters.coreml.shapes.integers import (
    Integers,
    axis_table,
    concatenate,
    integers,
    named_axes,
    normalize_axis,
    sizes_of,
)
from onnxport.converters.coreml.values import Value
from onnxport.converters.shape_arithmetic import run_time_axes, squeeze_table, squeezed_axes


@lower("Identity")
def identity(node: MilNode, mil: MilBuilder) -> None:
    """Copy the operand (ONNX Identity-21)."""
    node.emit(node.x)


@lower("Dropout")
def dropout(node: MilNode, mil: MilBuilder) -> None:
    """Copy the operand: inference drops nothing (ONNX Dropout-22)."""
    node.ignore("seed")  # of training
    ratio, training = node.optional(1), node.optional(2)
    is_kept = ratio is not None and ratio.constant is not None and not ratio.constant.any()
    if not is_kept and training is not None and (training.constant is None or training.constant.any()):
        node.unsupported("drops elements at random in training mode; export the model for inference")
    node.emit(node.x)
    if node.wants_output(1):
        shape = node.output_shape(1)
        if None in shape:
            node.emit(mil.fill(shape=sizes_of(mil, node.x).value, value=True), 1)
        else:
            node.emit(mil.constant(np.ones([dim or 0 for dim in shape], np.bool_)), 1)


@lower("Reshape")
def reshape(node: MilNode, mil: MilBuilder) -> None:
    """Change the dimensions (ONNX Reshape-21)."""
    x, wanted = node.input(0), node.input(1)
    shape = node.output_shape()
    keeps_zeros = bool(node.attribute("allowzero", 0))
    if high_rank.is_tall(x, len(shape)):
        node.emit(high_rank.reshape(mil, x, _sizes(node, mil, wanted, keeps_zeros)))
    elif shape.count(None) > 1:
        node.emit(reshape_to_sizes(mil, x, _target(node, mil, integers(mil, wanted), keeps_zeros)))
    else:
        node.emit(reshape_to(mil, x, shape))


def _sizes(node: MilNode, mil: MilBuilder, wanted: Value, keeps_zeros: bool) -> Sequence[high_rank.Size]:
    """Return the sizes one by one, for more axes than MIL has."""
    shape = node.output_shape()
    if shape.count(None) < 2:
        return shape
    target = _target(node, mil, integers(mil, wanted), keeps_zeros)
    if target.known is not None:
        return [None if size < 0 else int(size) for size in target.known]
    # A -1 for the rest makes the product negative.
    rest = sizes_of(mil, node.x).product() // -target.product()
    target = (target < 0).where(rest, target)
    return [target.element(axis) if size is None else size for axis, size in enumerate(shape)]


def _target(node: MilNode, mil: MilBuilder, wanted: Integers, keeps_zeros: bool) -> Integers:
    """Return the wanted sizes, 0 replaced by the operand's own: MIL counts its axes from the last one there."""
    shape, own = node.output_shape(), sizes_of(mil, node.x)
    if keeps_zeros and wanted.known is not None and (wanted.known == 0).any():
        node.unsupported("allowzero with a size of 0, and Core ML has no empty tensors")
    if not keeps_zeros:
        shared = min(own.length, wanted.length)
        padded = concatenate(mil, [own.part(0, shared), *[1] * (wanted.length - shared)])
        if wanted.known is not None:
            is_own = wanted.known == 0
            parts = [padded.element(i) if is_own[i] else int(wanted.known[i]) for i in range(wanted.length)]
            return concatenate(mil, parts)
        wanted = wanted.equals(0).where(padded, wanted)
    if all(size is None for size in shape):
        return wanted
    # Give MIL the sizes that ONNX knows.
    return concatenate(mil, [wanted.element(i) if size is None else size for i, size in enumerate(shape)])


def reshape_to(mil: MilBuilder, x: Value, shape: Sequence[int | None]) -> Value:
    """Reshape `x`; at most one dimension is open."""
    if x.constant is not None:
        return mil.constant(x.constant.reshape([-1 if dim is None else dim for dim in shape]), x.dtype)
    var = mil.var(x)
    if tuple(shape) == tuple(var.shape):
        return x
    result = mil.reshape(x=x, shape=[-1 if dim is None else dim for dim in shape] or [1])
    return result if shape else remove_axes(mil, result, [0])


def reshape_to_sizes(mil: MilBuilder, x: Value, sizes: Integers) -> Value:
    """Reshape `x` to sizes that may be computed at run time."""
    if sizes.known is not None:
        return reshape_to(mil, x, [None if size < 0 else int(size) for size in sizes.known])
    return mil.reshape(x=x, shape=sizes.value)


@lower("Flatten")
def flatten(node: MilNode, mil: MilBuilder) -> None:
    """Flatten to a matrix: the axes before `axis` become rows, the others columns (ONNX Flatten-21)."""
    x = node.x
    axis = normalize_axis(node.attribute("axis", 1), x.rank, last=True)
    if high_rank.is_tall(x):
        own = high_rank.sizes(mil, x)
        node.emit(
            high_rank.reshape(mil, x, [high_rank.product(mil, part) for part in (own[:axis], own[axis:])])
        )
        return
    if node.output_shape().count(None) < 2:
        node.emit(reshape_to(mil, x, node.output_shape()))
        return
    sizes = sizes_of(mil, x)
    node.emit(reshape_to_sizes(mil, x, concatenate(mil, [sizes.part(0, axis).product(), -1])))


@lower("Squeeze")
def squeeze(node: MilNode, mil: MilBuilder) -> None:
    """Remove axes of size 1 (ONNX Squeeze-21)."""
    x, axes = node.x, node.optional(1)
    if axes is not None and axes.constant is None:
        node.emit(_squeeze_at_run_time(node, mil, axes))
        return
    gone = squeezed_axes(node, x.shape) if axes is None else named_axes(axes, x.rank)
    node.emit(remove_axes(mil, x, gone))


def remove_axes(mil: MilBuilder, x: Value, gone: Sequence[int]) -> Value:
    """Remove axes of size 1."""
    left = [axis for axis in range(x.rank) if axis not in gone]
    if high_rank.is_tall(x):
        own = high_rank.sizes(mil, x)
        return high_rank.reshape(mil, x, [own[axis] for axis in left])
    if x.constant is not None or not gone:
        return reshape_to(mil, x, [x.shape[axis] for axis in left]) if gone else x
    # MIL leaves an axis in if it does not see that its size is 1.
    if all(mil.var(x).shape[axis] == 1 for axis in gone):
        return mil.squeeze(x=x, axes=list(gone))
    if sum(x.shape[axis] is None for axis in left) < 2:
        return reshape_to(mil, x, [x.shape[axis] for axis in left])
    sizes = sizes_of(mil, x)
    return reshape_to_sizes(mil, x, concatenate(mil, [x.shape[axis] or sizes.element(axis) for axis in left]))


def _squeeze_at_run_time(node: MilNode, mil: MilBuilder, axes: Value) -> Value:
    rank, count = node.x.rank, run_time_axes(node, axes.shape)
    if rank == count:
        return reshape_to(mil, node.x, [])
    kept = Integers(mil, 1) - axis_table(mil, axes, rank).sum(1)
    table = squeeze_table(kept, rank - count)
    sizes = (sizes_of(mil, node.x).column() * table).sum(0)
    return reshape_to_sizes(mil, node.x, sizes)


@lower("Unsqueeze")
def unsqueeze(node: MilNode, mil: MilBuilder) -> None:
    """Insert axes of size 1 (ONNX Unsqueeze-21)."""
    x, axes = node.x, node.input(1)
    if axes.constant is None:
        node.emit(_unsqueeze_at_run_time(node, mil, axes))
        return
    node.emit(insert_axes(mil, x, sorted(named_axes(axes, x.rank + axes.constant.size))))


def insert_axes(mil: MilBuilder, x: Value, axes: Sequence[int]) -> Value:
    """Insert axes of size 1 at `axes` of the result."""
    if not axes:
        return x
    if x.constant is not None:
        return mil.constant(np.expand_dims(x.constant, tuple(axes)), x.dtype)
    if high_rank.is_tall(x, x.rank + len(axes)):
        own = iter(high_rank.sizes(mil, x))
        return high_rank.reshape(mil, x, [1 if i in axes else next(own) for i in range(x.rank + len(axes))])
    return mil.expand_dims(x=x, axes=list(axes))


def _unsqueeze_at_run_time(node: MilNode, mil: MilBuilder, axes: Value) -> Value:
    x = node.x
    rank = x.rank + run_time_axes(node, axes.shape)
    new = axis_table(mil, axes, rank).sum(1)
    places = (Integers(mil, np.arange(1, rank + 1)) - new.running_sum() - 1).maximum(0)
    own = sizes_of(mil, x) if x.rank else Integers(mil, [1])
    moved = Integers(mil, mil.gather(x=own.value, indices=places.value, axis=0))
    return reshape_to_sizes(mil, x, new.equals(1).where(1, moved))


@lower("Transpose")
def transpose(node: MilNode, mil: MilBuilder) -> None:
    """Make axis perm[i] axis i (ONNX Transpose-21)."""
    x = node.x
    perm = [int(axis) for axis in node.attribute("perm", tuple(reversed(range(x.rank))))]
    if perm == list(range(x.rank)):
        node.emit(x)
    elif x.constant is not None:
        node.emit(mil.constant(np.transpose(x.constant, perm), x.dtype))
    elif high_rank.is_tall(x):
        node.emit(high_rank.transpose(mil, x, perm))
    else:
        node.emit(mil.transpose(x=x, perm=perm))


@lower("DepthToSpace")
def depth_to_space(node: MilNode, mil: MilBuilder) -> None:
    """Move channels into blocks of space (ONNX DepthToSpace-13)."""
    x, size, mode = node.x, node.attribute("blocksize"), node.attribute("mode", "DCR")
    if size == 1:
        node.emit(mil.identity(x=x))
    elif x.is_float and mode == "DCR":
        node.emit(mil.depth_to_space(x=x, block_size=size))
    elif x.is_float:
        node.emit(mil.pixel_shuffle(x=x, upscale_factor=size))
    else:
        _, channels, height, width = _known_sizes(node)
        depth = channels // size**2
        # Columns first, then rows: both at once would take six axes.
        if mode == "CRD":
            split, merged, perm = [depth * size, size, height, width], [depth, size], [0, 1, 3, 2, 4]
        else:
            split, merged, perm = [size, size, depth * height, width], [size, depth], [0, 2, 3, 1, 4]
        columns = mil.transpose(x=mil.reshape(x=x, shape=[-1, *split]), perm=[0, 1, 3, 4, 2])
        wide = mil.reshape(x=columns, shape=[-1, *merged, height, width * size])
        tall = mil.transpose(x=wide, perm=perm)
        node.emit(mil.reshape(x=tall, shape=[-1, depth, height * size, width * size]))


@lower("SpaceToDepth")
def space_to_depth(node: MilNode, mil: MilBuilder) -> None:
    """Move blocks of space into channels (ONNX SpaceToDepth-13)."""
    x, size = node.x, node.attribute("blocksize")
    if size == 1:
        node.emit(mil.identity(x=x))
    elif x.is_float:
        node.emit(mil.space_to_depth(x=x, block_size=size))
    else:
        _, channels, height, width = _known_sizes(node)
        columns = mil.reshape(x=x, shape=[-1, channels, height, width // size, size])
        columns = mil.transpose(x=columns, perm=[0, 4, 1, 2, 3])
        rows = mil.reshape(x=columns, shape=[-1, size * channels, height // size, size, width // size])
        rows = mil.transpose(x=rows, perm=[0, 3, 1, 2, 4])
        node.emit(mil.reshape(x=rows, shape=[-1, channels * size**2, height // size, width // size]))


def _known_sizes(node: MilNode) -> list[int]:
    if None in node.x.shape[1:]:
        node.unsupported("moves integers of an open size; fix it with --shape NAME=...")
    return [dim or 0 for dim in node.x.shape]
