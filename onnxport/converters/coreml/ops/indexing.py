"""Ops that pick elements by position: the Gathers, Compress, NonZero, ReverseSequence."""

from __future__ import annotations

from math import prod

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder
from onnxport.converters.coreml.numbers.integer_widths import is_natural
from onnxport.converters.coreml.ops.reshape import reshaped
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.shapes import high_rank
from onnxport.converters.coreml.shapes.axes import normalized
from onnxport.converters.coreml.shapes.integers import Integers, integers, joined, size_of, sizes_of
from onnxport.converters.coreml.values import Value
from onnxport.converters.lowering import NodeView

Node = NodeView[Value]


def movable(mil: MilBuilder, x: Value) -> Value:
    """`x` in a type that MIL's gathers and scatters take: a bool as an integer."""
    if x.dtype.kind != "b":
        return x
    return Value(x.shape, np.dtype(np.int32), copies={"int32": mil.var(x, "int32")})


def picked(mil: MilBuilder, x: Value, axis: int, positions: Integers) -> Value:
    """The elements of an axis at `positions`, none of which is negative."""
    if high_rank.is_tall(x, x.rank + len(positions.shape) - 1):
        row = positions.reshaped(-1)

        def change(part: Value) -> Value:
            result: Value = mil.gather(x=movable(mil, part), indices=row.value, axis=1)
            return result

        return high_rank.along(mil, x, axis, change, high_rank.sizes(mil, positions.value))
    result: Value = mil.gather(x=movable(mil, x), indices=positions.value, axis=axis)
    return result


@lower("Gather")
def gather(node: Node, mil: MilBuilder) -> None:
    """Picks slices along an axis by index (ONNX Gather-13); a negative index counts from the end."""
    x, indices = node.input(0), node.input(1)
    axis = normalized(node.attribute("axis", 0), x.rank)
    node.emit(picked(mil, x, axis, wrapped(node, mil, indices, axis)))


def wrapped(node: Node, mil: MilBuilder, indices: Value, axis: int) -> Integers:
    """The indices into `axis` of input 0 with its size added to the negative ones: to MIL they are out of bounds."""
    x = node.input(0)
    size, known = x.shape[axis], indices.constant
    if known is not None:
        if size is not None and ((known < -size) | (known >= size)).any():
            node.unsupported(f"an index outside the {size} elements of axis {axis}")
        if (known >= 0).all():
            return Integers(mil, known)
    if is_natural(indices):
        return integers(mil, indices)
    return integers(mil, indices).within(size_of(mil, x, axis))


@lower("GatherElements")
def gather_elements(node: Node, mil: MilBuilder) -> None:
    """y[i][j] = x[index[i][j]][j] and so on along an axis (ONNX GatherElements-13)."""
    x, indices = node.input(0), node.input(1)
    axis = normalized(node.attribute("axis", 0), x.rank)
    places = wrapped(node, mil, indices, axis)
    x = _cut_down(mil, movable(mil, x), indices, axis)
    node.emit(mil.gather_along_axis(x=x, indices=places.value, axis=axis))


def _cut_down(mil: MilBuilder, x: Value, indices: Value, axis: int) -> Value:
    """`x` without what lies beyond the indices on the other axes: MIL wants sizes that are the same."""
    if same_sizes(mil, x, indices, axis):
        return x
    others = [i != axis for i in range(x.rank)]
    wanted = sizes_of(mil, indices)
    ends = [wanted.element(i) if other else 0 for i, other in enumerate(others)]
    result: Value = mil.slice_by_index(
        x=x,
        begin=[0] * x.rank,
        end=joined(mil, ends).value,
        begin_mask=[True] * x.rank,
        end_mask=[not other for other in others],
    )
    return result


def same_sizes(mil: MilBuilder, x: Value, indices: Value, axis: int) -> bool:
    """Whether the operands are sure to be of one size on every axis but one."""
    sizes = zip(mil.var(x).shape, mil.var(indices).shape, strict=True)
    return all(i == axis or a == b for i, (a, b) in enumerate(sizes))


@lower("GatherND")
def gather_nd(node: Node, mil: MilBuilder) -> None:
    """Picks slices by tuples of indices, after `batch_dims` axes that both operands share (ONNX GatherND-13)."""
    x, indices, batch = node.input(0), node.input(1), node.attribute("batch_dims", 0)
    tuples = wrapped_tuples(node, mil, batch)
    if batch and not mil.at_least("iOS16"):
        node.unsupported("batch_dims needs iOS16 (MIL's gather_nd); give --minimum-target iOS16")
    extra = {"batch_dims": batch} if batch else {}
    if indices.rank == 1 and batch + tuples.length == x.rank:
        found = mil.gather_nd(x=movable(mil, x), indices=tuples.reshaped(1, tuples.length).value)
        node.emit(mil.squeeze(x=found, axes=[0]))
        return
    node.emit(mil.gather_nd(x=movable(mil, x), indices=tuples.value, **extra))


def wrapped_tuples(node: Node, mil: MilBuilder, batch: int = 0) -> Integers:
    """Input 1's tuples of indices into input 0's axes from `batch` on, negative ones counted from the end."""
    x, indices = node.input(0), node.input(1)
    depth = indices.shape[-1]
    if depth is None:
        node.unsupported("indices of an open depth; fix the inputs' sizes with --shape NAME=...")
    sizes, known = x.shape[batch : batch + depth], indices.constant
    if known is not None:
        limits = np.array([np.iinfo(np.int32).max if size is None else size for size in sizes])
        if ((known < -limits) | (known >= limits)).any():
            node.unsupported("an index outside its axis")
        if (known >= 0).all():
            return Integers(mil, known)
    if is_natural(indices):
        return integers(mil, indices)
    return integers(mil, indices).within(sizes_of(mil, x).part(batch, batch + depth))


# ---- results whose size depends on the data


@lower("NonZero")
def non_zero(node: Node, mil: MilBuilder) -> None:
    """The coordinates of all elements that are not 0, one row per axis (ONNX NonZero-13)."""
    if node.x.rank == 0:
        node.unsupported("a scalar")
    result = mil.transpose(x=mil.non_zero(x=node.x), perm=[1, 0])
    result.is_natural = True
    node.emit(result)


@lower("Compress")
def compress(node: Node, mil: MilBuilder) -> None:
    """The slices along an axis for which the condition holds (ONNX Compress-11)."""
    x, condition = node.input(0), node.input(1)
    axis = node.attribute("axis", None)
    if axis is None:
        x, axis = flat(mil, x), 0
    axis = normalized(axis, x.rank)
    if condition.constant is not None:
        places = Integers(mil, np.flatnonzero(condition.constant))
        if not places.length:
            node.unsupported("takes nothing, and Core ML holds no tensor without elements")
    else:
        places = Integers(mil, mil.reshape(x=mil.non_zero(x=condition), shape=[-1]))
    node.emit(picked(mil, x, axis, places))


def flat(mil: MilBuilder, x: Value) -> Value:
    """The elements of x as one row."""
    return reshaped(mil, x, [None if None in x.shape else prod(dim or 0 for dim in x.shape)])


@lower("ReverseSequence")
def reverse_sequence(node: Node, mil: MilBuilder) -> None:
    """The first elements of each sequence in a batch turned round (ONNX ReverseSequence-10)."""
    batch, time = node.attribute("batch_axis", 1), node.attribute("time_axis", 0)
    node.emit(mil.reverse_sequence(x=node.x, lengths=node.input(1), seq_axis=time, batch_axis=batch))
