"""Ops that pick elements by position: the Gathers, Compress, NonZero, ReverseSequence."""

from __future__ import annotations

from math import prod

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder, MilNode
from onnxport.converters.coreml.numbers.integer_widths import is_natural
from onnxport.converters.coreml.ops.reshape import reshape_to
from onnxport.converters.coreml.quantized import Grid
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.shapes import high_rank
from onnxport.converters.coreml.shapes.integers import (
    Integers,
    concatenate,
    integers,
    normalize_axis,
    size_of,
    sizes_of,
)
from onnxport.converters.coreml.values import Value
from onnxport.converters.semantics import check_indices


def to_gatherable(mil: MilBuilder, x: Value) -> Value:
    """Return x in a type that MIL's gathers and scatters take: a bool as an integer."""
    if x.dtype.kind != "b":
        return x
    return Value(x.shape, np.dtype(np.int32), copies={"int32": mil.var(x, "int32")})


def gather_at(mil: MilBuilder, x: Value, axis: int, positions: Integers) -> Value:
    """Gather the elements of an axis at `positions`, none of which is negative."""
    if high_rank.is_tall(x, x.rank + len(positions.shape) - 1):
        row = positions.reshape(-1)
        return high_rank.apply_along(
            mil,
            x,
            axis,
            lambda part: mil.gather(x=to_gatherable(mil, part), indices=row.value, axis=1),
            high_rank.sizes(mil, positions.value),
        )
    return mil.gather(x=to_gatherable(mil, x), indices=positions.value, axis=axis)


@lower("Gather")
def gather(node: MilNode, mil: MilBuilder) -> None:
    """Pick slices along an axis by index (ONNX Gather-13); a negative index counts from the end."""
    x, indices = node.input(0), node.input(1)
    axis = normalize_axis(node.attribute("axis", 0), x.rank)
    places = wrap_indices(node, mil, indices, axis)
    if x.constant is not None and x.dtype.name in ("int8", "uint8") and x.rank:
        node.emit(mil.cast(x=gather_at(mil, _as_stored(x), axis, places), dtype="int32"))
        return
    node.emit(gather_at(mil, x, axis, places))


def _as_stored(table: Value) -> Value:
    """Return a constant of 8-bit integers as floats that the package stores in 8 bits; MIL's integers have 32."""
    assert table.constant is not None
    grid = Grid(table.constant, table.dtype.name, np.ones((1,) * table.rank, np.float32), None)
    return Value(
        table.shape, np.dtype(np.float32), constant=table.constant.astype(np.float32), quantized=grid
    )


def wrap_indices(node: MilNode, mil: MilBuilder, indices: Value, axis: int) -> Integers:
    """Add the size of input 0's `axis` to negative indices, which MIL takes for out of bounds."""
    x, known = node.input(0), indices.constant
    if known is not None:
        check_indices(node, known, [x.shape[axis]])
    if is_natural(indices):
        return integers(mil, indices)
    return integers(mil, indices).within(size_of(mil, x, axis))


@lower("GatherElements")
def gather_elements(node: MilNode, mil: MilBuilder) -> None:
    """y[i][j] = x[index[i][j]][j] and so on along an axis (ONNX GatherElements-13)."""
    x, indices = node.input(0), node.input(1)
    axis = normalize_axis(node.attribute("axis", 0), x.rank)
    places = wrap_indices(node, mil, indices, axis)
    x = _crop(mil, to_gatherable(mil, x), indices, axis)
    node.emit(mil.gather_along_axis(x=x, indices=places.value, axis=axis))


def _crop(mil: MilBuilder, x: Value, indices: Value, axis: int) -> Value:
    """Crop x to the sizes of the indices on the other axes: MIL wants equal sizes."""
    if same_sizes(mil, x, indices, axis):
        return x
    others = [i != axis for i in range(x.rank)]
    wanted = sizes_of(mil, indices)
    ends = [wanted.element(i) if other else 0 for i, other in enumerate(others)]
    return mil.slice_by_index(
        x=x,
        begin=[0] * x.rank,
        end=concatenate(mil, ends).value,
        begin_mask=[True] * x.rank,
        end_mask=[not other for other in others],
    )


def same_sizes(mil: MilBuilder, x: Value, indices: Value, axis: int) -> bool:
    """Return whether the operands surely have equal sizes on every axis but one."""
    sizes = zip(mil.var(x).shape, mil.var(indices).shape, strict=True)
    return all(i == axis or a == b for i, (a, b) in enumerate(sizes))


@lower("GatherND")
def gather_nd(node: MilNode, mil: MilBuilder) -> None:
    """Pick slices by tuples of indices, after `batch_dims` axes that both operands share (ONNX GatherND-13)."""
    x, indices, batch = node.input(0), node.input(1), node.attribute("batch_dims", 0)
    tuples = wrap_tuples(node, mil, batch)
    if batch and not mil.at_least("iOS16"):
        node.unsupported("batch_dims needs iOS16 (MIL's gather_nd); give --minimum-target iOS16")
    extra = {"batch_dims": batch} if batch else {}
    if indices.rank == 1 and batch + tuples.length == x.rank:
        found = mil.gather_nd(x=to_gatherable(mil, x), indices=tuples.reshape(1, tuples.length).value)
        node.emit(mil.squeeze(x=found, axes=[0]))
        return
    node.emit(mil.gather_nd(x=to_gatherable(mil, x), indices=tuples.value, **extra))


def wrap_tuples(node: MilNode, mil: MilBuilder, batch: int = 0) -> Integers:
    """Input 1's tuples of indices into input 0's axes from `batch` on, with negative ones made positive."""
    x, indices = node.input(0), node.input(1)
    depth = indices.shape[-1]
    if depth is None:
        node.unsupported("indices of an open depth; fix the inputs' sizes with --shape NAME=...")
    if indices.constant is not None:
        check_indices(node, indices.constant, x.shape[batch : batch + depth])
    if is_natural(indices):
        return integers(mil, indices)
    return integers(mil, indices).within(sizes_of(mil, x).part(batch, batch + depth))


@lower("NonZero")
def non_zero(node: MilNode, mil: MilBuilder) -> None:
    """The coordinates of all elements other than 0, one row per axis (ONNX NonZero-13)."""
    if node.x.rank == 0:
        node.unsupported("a scalar")
    result = mil.transpose(x=mil.non_zero(x=node.x), perm=[1, 0])
    result.is_natural = True
    node.emit(result)


@lower("Compress")
def compress(node: MilNode, mil: MilBuilder) -> None:
    """The slices along an axis for which the condition holds (ONNX Compress-11)."""
    x, condition = node.input(0), node.input(1)
    axis = node.attribute("axis", None)
    if axis is None:
        x, axis = flatten(mil, x), 0
    axis = normalize_axis(axis, x.rank)
    if condition.constant is not None:
        places = Integers(mil, np.flatnonzero(condition.constant))
        if not places.length:
            node.unsupported("selects nothing, and Core ML has no empty tensors")
    else:
        places = Integers(mil, mil.reshape(x=mil.non_zero(x=condition), shape=[-1]))
    node.emit(gather_at(mil, x, axis, places))


def flatten(mil: MilBuilder, x: Value) -> Value:
    """Return the elements of x as one row."""
    return reshape_to(mil, x, [None if None in x.shape else prod(dim or 0 for dim in x.shape)])


@lower("ReverseSequence")
def reverse_sequence(node: MilNode, mil: MilBuilder) -> None:
    """Reverse the first elements of each sequence in a batch (ONNX ReverseSequence-10)."""
    batch, time = node.attribute("batch_axis", 1), node.attribute("time_axis", 0)
    node.emit(mil.reverse_sequence(x=node.x, lengths=node.input(1), seq_axis=time, batch_axis=batch))
