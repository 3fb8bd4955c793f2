"""Ops that cut a value up along its axes: Slice, Split."""

from __future__ import annotations

from collections.abc import Sequence

from onnxport.converters.coreml.axes import normalized
from onnxport.converters.coreml.builder import MilBuilder
from onnxport.converters.coreml.integers import (
    LIMIT,
    Integers,
    axis_table,
    counted,
    integers,
    joined,
    size_of,
)
from onnxport.converters.coreml.ops.indexing import picked
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.values import Value
from onnxport.converters.lowering import NodeView

Node = NodeView[Value]


@lower("Slice")
def slice_(node: Node, mil: MilBuilder) -> None:
    """NumPy's slice with steps along some axes (ONNX Slice-13); bounds beyond the end are clamped."""
    if node.input(1).shape[0] is None:
        node.unsupported("the number of its axes is known only at run time")
    bounds = _Bounds(node, mil)
    if all(step.known is not None and step.known > 0 for _, _, step in bounds):
        node.emit(_forward(node, mil, bounds))
        return
    x = node.x
    for axis, (start, end, step) in enumerate(bounds):
        if not bounds.is_whole(axis):
            x = picked(mil, x, axis, _positions(node, mil, axis, start, end, step))
    node.emit(x)


class _Bounds:
    """Start, end and step of every axis of x, scalars; those of an axis that stays whole are 0, LIMIT and 1."""

    def __init__(self, node: Node, mil: MilBuilder) -> None:
        count, rank = node.input(1).shape[0] or 0, node.x.rank
        axes, steps = node.optional(3), node.optional(4)
        given = [integers(mil, node.input(1)), integers(mil, node.input(2))]
        given.append(Integers(mil, [1] * count) if steps is None else integers(mil, steps))
        whole = (0, LIMIT, 1)
        self._axes: list[tuple[Integers, ...]]
        if axes is not None and axes.constant is None:
            table = axis_table(mil, axes, rank)
            is_cut = table.summed(1).equals(1)
            spread = [
                is_cut.where((table * each).summed(1), other)
                for each, other in zip(given, whole, strict=True)
            ]
            self._axes = [tuple(each.element(axis) for each in spread) for axis in range(rank)]
            self._whole: set[int] = set()
            return
        named = range(count) if axes is None else [int(axis) for axis in axes.constant.reshape(-1)]
        targets = [normalized(axis, rank) for axis in named]
        self._axes = [tuple(Integers(mil, each) for each in whole)] * rank
        for place, axis in enumerate(targets):
            self._axes[axis] = tuple(each.element(place) for each in given)
        self._whole = {axis for axis in range(rank) if axis not in targets}

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._axes)

    def is_whole(self, axis: int) -> bool:
        start, end, step = (each.known for each in self._axes[axis])
        return axis in self._whole or (start == 0 and end == LIMIT and step == 1)


def _forward(node: Node, mil: MilBuilder, bounds: _Bounds) -> Value:
    x = node.x
    begins, ends, steps = [], [], []
    for axis, (start, end, step) in enumerate(bounds):
        size = x.shape[axis]
        if size is not None and start.known is not None and end.known is not None:
            first, last, _ = slice(int(start.known), int(end.known)).indices(size)
            if first >= last:
                node.unsupported("gives a tensor without elements, which Core ML does not hold")
            start, end = Integers(mil, first), Integers(mil, last)
        begins.append(start)
        ends.append(end)
        steps.append(int(step.known))
    whole_begin = [begin.known is not None and begin.known == 0 for begin in begins]
    whole_end = [
        end.known is not None and (end.known == LIMIT or (end.known == size and size is not None))
        for end, size in zip(ends, x.shape, strict=True)
    ]
    if all(whole_begin) and all(whole_end) and max(steps) == 1:
        return x
    return mil.slice_by_index(
        x=x,
        begin=joined(mil, begins).value,
        end=joined(mil, [0 if whole else end for end, whole in zip(ends, whole_end, strict=True)]).value,
        stride=steps,
        begin_mask=[bool(each) for each in whole_begin],
        end_mask=[bool(each) for each in whole_end],
    )


def _positions(
    node: Node, mil: MilBuilder, axis: int, start: Integers, end: Integers, step: Integers
) -> Integers:
    """Which elements of an axis a slice takes, in order, when it may run backwards."""
    if step.known is not None and step.known < 0 and end.known is not None and end.known >= LIMIT:
        node.unsupported(
            "steps backwards to the largest integer, which is nothing to ONNX and everything to ONNX Runtime; "
            "write the smallest integer for the end"
        )
    size = size_of(mil, node.x, axis)
    backwards = step < 0
    # ONNX clamps a backward slice's start to the first element, where NumPy gives nothing.
    highest, lowest = backwards.where(size - 1, size), backwards.where(-1, 0)
    # ONNX Runtime takes the largest integer for "through the last one" backwards as well.
    end = end.equals(LIMIT).where(backwards.where(-LIMIT, LIMIT), end)
    first = start.within(size).maximum(0).minimum(highest)
    last = end.within(size).maximum(lowest).minimum(highest)
    count = (last - first + step - backwards.where(-1, 1)) // step
    if count.known is not None and count.known <= 0:
        node.unsupported("gives a tensor without elements, which Core ML does not hold")
    return counted(mil, count.maximum(0)) * step + first


# ---- Split


@lower("Split")
def split(node: Node, mil: MilBuilder) -> None:
    """Cuts a value along an axis (ONNX Split-18); sizes default to equal parts, the last one smaller."""
    x = node.x
    axis = normalized(node.attribute("axis", 0), x.rank)
    sizes = node.optional(1)
    count = node.attribute("num_outputs", node.output_count)
    length = size_of(mil, x, axis)
    if sizes is not None:
        parts = integers(mil, sizes)
    else:
        part = (length + (count - 1)) // count
        starts = Integers(mil, range(count)) * part
        parts = (length - starts).minimum(part).maximum(0)
    if parts.known is not None and (parts.known > 0).all():
        _split_now(node, mil, axis, [int(part) for part in parts.known])
        return
    ends = parts.running_sum()
    starts = ends - parts
    for index in range(node.output_count):
        if node.wants_output(index):
            begin, end = starts.element(index), ends.element(index)
            if begin.known is not None and begin.known == end.known:
                node.unsupported("gives a tensor without elements, which Core ML does not hold")
            node.emit(between(mil, x, axis, begin, end), index)


def _split_now(node: Node, mil: MilBuilder, axis: int, parts: Sequence[int]) -> None:
    if len(parts) == 1:
        node.emit(node.x)
        return
    for index, part in enumerate(mil.split(x=node.x, split_sizes=parts, axis=axis)):
        node.emit(part, index)


def between(mil: MilBuilder, x: Value, axis: int, begin: Integers, end: Integers) -> Value:
    """The elements of an axis from `begin` up to `end`."""
    others = [i != axis for i in range(x.rank)]
    begins, ends = ([0 if other else bound for other in others] for bound in (begin, end))
    return mil.slice_by_index(
        x=x,
        begin=joined(mil, begins).value,
        end=joined(mil, ends).value,
        begin_mask=others,
        end_mask=others,
    )
