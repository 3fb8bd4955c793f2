"""Slice and Split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from onnxport.converters.coreml.builder import MilBuilder, MilNode
from onnxport.converters.coreml.ops.indexing import gather_at
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.shapes import high_rank
from onnxport.converters.coreml.shapes.integers import (
    Integers,
    arange,
    axis_table,
    concatenate,
    integers,
    named_axes,
    normalize_axis,
    size_of,
)
from onnxport.converters.coreml.values import Value, empty
from onnxport.converters.shape_arithmetic import LIMIT, clamp_bounds, even_parts, refuse_disputed_end

_WHOLE = (0, LIMIT, 1)  # start, end and step of an axis that stays whole


@lower("Slice")
def slice_(node: MilNode, mil: MilBuilder) -> None:
    """Slice some axes with steps (ONNX Slice-13); bounds beyond the end are clamped."""
    if node.input(1).shape[0] is None:
        node.unsupported("the number of its axes is known only at run time")
    cuts = _cuts(node, mil)
    if all(cut.is_forward for cut in cuts) and not high_rank.is_tall(node.x):
        node.emit(_slice_forwards(node, mil, cuts))
        return
    x = node.x
    for axis, cut in enumerate(cuts):
        if not cut.is_whole:
            x = gather_at(mil, x, axis, _positions(node, mil, axis, cut))
    node.emit(x)


class _Cut(NamedTuple):
    """A slice of one axis, scalars."""

    start: Integers
    end: Integers
    step: Integers

    @property
    def is_forward(self) -> bool:
        return self.step.number is not None and self.step.number > 0

    @property
    def is_whole(self) -> bool:
        return tuple(bound.number for bound in self) == _WHOLE


def _cuts(node: MilNode, mil: MilBuilder) -> list[_Cut]:
    """Return the slice of every axis of x."""
    count, rank = node.input(1).shape[0] or 0, node.x.rank
    axes, steps = node.optional(3), node.optional(4)
    given = [integers(mil, node.input(1)), integers(mil, node.input(2))]
    given.append(Integers(mil, [1] * count) if steps is None else integers(mil, steps))
    if axes is not None and axes.constant is None:
        table = axis_table(mil, axes, rank)
        is_cut = table.sum(1).equals(1)
        spread = [is_cut.where((table * each).sum(1), w) for each, w in zip(given, _WHOLE, strict=True)]
        return [_Cut(*(each.element(axis) for each in spread)) for axis in range(rank)]
    targets = list(range(count)) if axes is None else named_axes(axes, rank)
    cuts = [_Cut(*(Integers(mil, each) for each in _WHOLE))] * rank
    for place, axis in enumerate(targets):
        cuts[axis] = _Cut(*(each.element(place) for each in given))
    return cuts


def _slice_forwards(node: MilNode, mil: MilBuilder, cuts: Sequence[_Cut]) -> Value:
    """Slice forwards, as MIL does."""
    x = node.x
    begins, ends, steps = [], [], [cut.step.number or 1 for cut in cuts]
    for cut, size in zip(cuts, x.shape, strict=True):
        begin, end = cut.start, cut.end
        if size is not None and begin.number is not None and end.number is not None:
            first, last, _ = slice(begin.number, end.number).indices(size)
            if first >= last:
                return empty(node.output_shape(), x.dtype)
            begin, end = Integers(mil, first), Integers(mil, last)
        begins.append(begin)
        ends.append(end)
    from_first = [begin.number == 0 for begin in begins]
    to_last = [end.number in (LIMIT, size or LIMIT) for end, size in zip(ends, x.shape, strict=True)]
    if all(from_first) and all(to_last) and max(steps) == 1:
        return x
    return mil.slice_by_index(
        x=x,
        begin=concatenate(mil, begins).value,
        end=concatenate(mil, [0 if whole else end for end, whole in zip(ends, to_last, strict=True)]).value,
        stride=steps,
        begin_mask=from_first,
        end_mask=to_last,
    )


def _positions(node: MilNode, mil: MilBuilder, axis: int, cut: _Cut) -> Integers:
    """Return the indices of a slice that may run backwards."""
    start, end, step = cut
    if (step.number or 0) < 0 and end.number == LIMIT:
        refuse_disputed_end(node)
    size = size_of(mil, node.x, axis)
    backwards = step < 0
    first, last = clamp_bounds(size, start, end, backwards)
    count = (last - first + step - backwards.where(-1, 1)) // step
    if count.number is not None and count.number <= 0:
        node.unsupported("gives an empty tensor, and Core ML has no empty tensors")
    return arange(mil, count.maximum(0)) * step + first


# ---- Split


@lower("Split")
def split(node: MilNode, mil: MilBuilder) -> None:
    """Split an axis (ONNX Split-18); sizes default to equal parts, the last one smaller."""
    x = node.x
    axis = normalize_axis(node.attribute("axis", 0), x.rank)
    sizes = node.optional(1)
    count = node.attribute("num_outputs", node.output_count)
    length = size_of(mil, x, axis)
    parts = even_parts(length, count) if sizes is None else integers(mil, sizes)
    if parts.known is not None and (parts.known > 0).all() and not high_rank.is_tall(x):
        pieces = [x]
        if len(parts.known) > 1:
            pieces = mil.emit_all("split", x=x, split_sizes=[int(part) for part in parts.known], axis=axis)
        for index, piece in enumerate(pieces):
            node.emit(piece, index)
        return
    ends = parts.running_sum()
    starts = ends - parts
    for index in range(node.output_count):
        if node.wants_output(index):
            begin, end = starts.element(index), ends.element(index)
            if begin.number is not None and begin.number == end.number:
                shape = tuple(0 if i == axis else dim for i, dim in enumerate(x.shape))
                node.emit(empty(shape, x.dtype), index)
            else:
                node.emit(slice_axis(mil, x, axis, begin, end), index)


def slice_axis(mil: MilBuilder, x: Value, axis: int, begin: Integers, end: Integers) -> Value:
    """Return the elements of an axis from `begin` up to `end`."""
    if high_rank.is_tall(x):
        return high_rank.apply_along(
            mil, x, axis, lambda part: slice_axis(mil, part, 1, begin, end), [end - begin]
        )
    others = [i != axis for i in range(x.rank)]
    begins, ends = ([0 if other else bound for other in others] for bound in (begin, end))
    begin_values, end_values = concatenate(mil, begins).value, concatenate(mil, ends).value
    return mil.slice_by_index(x=x, begin=begin_values, end=end_values, begin_mask=others, end_mask=others)
