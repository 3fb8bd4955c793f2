"""Slice and Split."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxport.converters.shape_arithmetic import LIMIT, clamp_bounds, even_parts, refuse_disputed_end
from onnxport.converters.tflite.builder import TflBuilder, TflNode, optional_constant, require_constant
from onnxport.converters.tflite.formulas import Integers, axis_table, integers
from onnxport.converters.tflite.layout import Shape, normalize_axis, permute, product
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.tensors import Bounds, Tensor
from onnxport.converters.tflite.values import Value, constant

# Ends that ONNX Runtime reads as "through the last element", whatever the direction.
_THROUGH = (LIMIT, np.iinfo(np.int64).max)
_MOST_AXES = 5  # that TFLite's STRIDED_SLICE takes

_WHOLE: Bounds = (0, None, 1)


@lower("Slice")
def slice_(node: TflNode, tfl: TflBuilder) -> None:
    """Slice some axes with steps (ONNX Slice-13); bounds beyond the end are clamped."""
    x = node.x
    if node.input(1).shape[0] is None:
        node.unsupported("the number of its axes is known only at run time")
    operands = [node.optional(index) for index in range(1, 5)]
    if any(operand is not None and operand.constant is None for operand in operands):
        node.emit(_slice_at_run_time(node, tfl))
        return
    starts, ends = (require_constant(node, i, name).tolist() for i, name in ((1, "starts"), (2, "ends")))
    bounds: dict[int, Bounds] = dict.fromkeys(range(x.rank), _WHOLE)
    cuts = list(zip(_targets(node), starts, ends, _strides(node), strict=True))
    if any(x.shape[axis] is None and step < 0 and first < -1 for axis, first, _, step in cuts):
        node.emit(_slice_at_run_time(node, tfl))  # where it begins depends on the size
        return
    for axis, first, last, step in cuts:
        bounds[axis] = (*_bounds(node, first, last, step, x.shape[axis]), step)
    node.emit(_slice_natively(node, tfl, bounds))


def _targets(node: TflNode) -> list[int]:
    axes = optional_constant(node, 3, "axes")
    if axes is None:
        return list(range(node.input(1).shape[0] or 0))
    return [normalize_axis(int(axis), node.x.rank) for axis in axes]


def _strides(node: TflNode) -> list[int]:
    steps = optional_constant(node, 4, "steps")
    return [1] * (node.input(1).shape[0] or 0) if steps is None else [int(step) for step in steps]


def _bounds(node: TflNode, first: int, last: int, step: int, size: int | None) -> tuple[int, int | None]:
    if step < 0 and last in _THROUGH:
        refuse_disputed_end(node)
    if size is None:
        if step > 0 and (last == 0 or ((first < 0) == (last < 0) and first >= last)):
            node.unsupported("nothing of an open dimension; use --shape NAME=...")
        runs_through = last >= LIMIT if step > 0 else last <= -LIMIT
        begin = max(min(first, LIMIT), -LIMIT)
        return begin, None if runs_through else max(min(last, LIMIT), -LIMIT)
    # ONNX clamps a backward slice's start to the first element, where NumPy gives nothing.
    lowest, highest = (0, size) if step > 0 else (-1, size - 1)
    begin = min(max(first + size * (first < 0), 0), highest)
    end = min(max(last + size * (last < 0), lowest), highest)
    # Backwards, "one before the first" is -1, which would count from the end.
    return begin, None if end < 0 else end


def _slice_natively(node: TflNode, tfl: TflBuilder, bounds: dict[int, Bounds]) -> Value:
    x, shape = node.x, node.output_shape()
    if 0 in shape:
        if None in shape:
            node.unsupported("nothing of an open dimension; use --shape NAME=...")
        # Known to be empty; the compiler's own SLICE counts wrong there.
        return constant(np.zeros([dim or 0 for dim in shape], x.dtype))
    order = tfl.common_order(x)
    cuts = [bounds[axis] for axis in order]
    return tfl.value(_strided_slice(tfl, tfl.tensor(x, order), cuts, permute(shape, order)), order)


def _strided_slice(tfl: TflBuilder, tensor: Tensor, bounds: Sequence[Bounds], shape: Shape) -> Tensor:
    sizes = tfl.shape_of(tensor)
    if len(sizes) > _MOST_AXES and (groups := _merge_axes(sizes, bounds)) is not None:
        # Axes that stay whole are one to the kernel.
        joined, cut = (
            tuple(product([s[axis] for axis in group]) for group in groups) for s in (sizes, shape)
        )
        merged = [bounds[group[0]] for group in groups]
        return tfl.reshape(_strided_slice(tfl, tfl.reshape(tensor, joined), merged, cut), shape)
    # On an open axis the compiler makes a SLICE of a constant end, which then may lie beyond the last element.
    ends: Tensor | None = None
    if any(size is None and (end or 0) > 0 for size, (_, end, _) in zip(sizes, bounds, strict=True)):
        ends = Integers(tfl, tfl.sizes(tensor)).minimum([end or 0 for _, end, _ in bounds]).tensor
    return tfl.strided_slice(tensor, bounds, shape, ends)


def _merge_axes(sizes: Shape, bounds: Sequence[Bounds]) -> list[list[int]] | None:
    """Group neighbouring axes that stay whole; None if that saves none, or sizes are too open to reshape."""
    groups: list[list[int]] = []
    for axis, bound in enumerate(bounds):
        whole = bound[0] == 0 and bound[2] == 1 and bound[1] in (None, sizes[axis])
        if groups and whole and bounds[groups[-1][0]] == _WHOLE:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups if len(groups) < len(sizes) and sizes.count(None) < 2 else None


# ---- bounds computed at run time


def _slice_at_run_time(node: TflNode, tfl: TflBuilder) -> Value:
    """Slice with computed starts, ends, axes or steps, all bounds clamped before.

    STRIDED_SLICE clamps forwards as ONNX does, but gives nothing where ONNX starts backwards at the first element.
    """
    x = node.x
    spread = _Spread(node, tfl)
    starts, ends = (spread(integers(tfl, node.input(index)), 0) for index in (1, 2))
    if spread.is_forward:
        untouched = sum(1 << axis for axis, position in enumerate(spread.positions) if position is None)
        steps = Integers(tfl, tfl.int32([spread.stride(axis) for axis in range(x.rank)]))
    else:
        untouched, given = 0, node.optional(4)
        steps = Integers(tfl, tfl.int32([1] * x.rank)) if given is None else spread(integers(tfl, given), 1)
        sizes, is_cut = Integers(tfl, tfl.run_time_shape(x)), spread.is_cut()
        starts, ends = clamp_bounds(sizes, starts, ends, steps < 0, is_cut)
        # Backwards, "one before the first" is -1, which STRIDED_SLICE would count from the end.
        ends = (ends < 0).where(ends - sizes, ends)
    operands = [tfl.tensor(x), starts.tensor, ends.tensor, steps.tensor]
    return tfl.value(tfl.slice_by_tensors(operands, spread.shape(), untouched, untouched))


class _Spread:
    """A map of operands with an element per cut axis to an element per axis of x."""

    def __init__(self, node: TflNode, tfl: TflBuilder) -> None:
        self.tfl, self.rank, self.x = tfl, node.x.rank, node.x
        axes, steps = node.optional(3), node.optional(4)
        self.table: Integers | None = None
        self.positions: list[int | None] = [None] * self.rank
        if axes is not None and axes.constant is None:
            self.table = axis_table(tfl, axes, self.rank)
        else:
            targets = _targets(node)
            self.positions = [targets.index(axis) if axis in targets else None for axis in range(self.rank)]
        self.strides = None if steps is not None and steps.constant is None else _strides(node)

    @property
    def is_forward(self) -> bool:
        """Return whether only starts and ends are computed, and no step is negative."""
        return self.table is None and self.strides is not None and min(self.strides) > 0

    def stride(self, axis: int) -> int:
        position = self.positions[axis]
        return 1 if position is None or self.strides is None else self.strides[position]

    def __call__(self, values: Integers, default: int) -> Integers:
        if self.table is not None:
            named = (self.table * values).sum(1)
            return named if not default else named + (self.is_cut().where(0, default))
        tfl = self.tfl
        parts = [
            tfl.int32([default]) if at is None else tfl.slice(values.tensor, [at], [1])
            for at in self.positions
        ]
        return Integers(tfl, tfl.concatenate(parts))

    def is_cut(self) -> Integers:
        """Return a condition per axis: it is cut."""
        if self.table is not None:
            return self.table.sum(1).equals(1)
        return Integers(self.tfl, self.tfl.constant([at is not None for at in self.positions], bool))

    def shape(self) -> Shape:
        if self.table is not None:
            return (None,) * self.rank
        return tuple(d if at is None else None for d, at in zip(self.x.shape, self.positions, strict=True))


# ---- Split


@lower("Split")
def split(node: TflNode, tfl: TflBuilder) -> None:
    """Split an axis (ONNX Split-18); sizes default to equal parts, the last one smaller."""
    x = node.x
    axis = normalize_axis(node.attribute("axis", 0), x.rank)
    sizes = node.optional(1)
    count = node.attribute("num_outputs", node.output_count)
    length = x.shape[axis]
    if sizes is not None and sizes.constant is None:
        _split_at_run_time(node, tfl, axis, integers(tfl, sizes))
        return
    if sizes is not None and sizes.constant is not None:
        parts = sizes.constant.tolist()
    elif length is None:
        length_now = Integers(tfl, tfl.size(tfl.tensor(x), axis))
        _split_at_run_time(node, tfl, axis, even_parts(length_now, count))
        return
    else:
        part = -(-length // count)
        parts = [min(part, length - i * part) for i in range(count)]
    order = tfl.common_order(x)
    tensor, shape = tfl.tensor(x, order), permute(x.shape, order)
    physical, start = order.index(axis), 0
    for index, size in enumerate(parts):
        begin = [start if i == physical else 0 for i in range(x.rank)]
        part_shape = [size if i == physical else dim for i, dim in enumerate(shape)]
        if node.wants_output(index):
            node.emit(tfl.value(tfl.slice(tensor, begin, part_shape), order), index)
        start += size


def _split_at_run_time(node: TflNode, tfl: TflBuilder, axis: int, sizes: Integers) -> None:
    x = node.x
    ends = sizes.running_sum()
    starts = ends - sizes
    for index in range(node.output_count):
        if not node.wants_output(index):
            continue
        begin, size = (
            _only_at(tfl, axis, x.rank, tfl.slice(part.tensor, [index], [1]), other)
            for part, other in ((starts, 0), (sizes, -1))
        )
        shape = [None if i == axis else dim for i, dim in enumerate(x.shape)]
        node.emit(tfl.value(tfl.op("slice", [tfl.tensor(x), begin, size], shape)), index)


def _only_at(tfl: TflBuilder, axis: int, rank: int, number: Tensor, other: int) -> Tensor:
    """Return a vector of `other`, with `number` at `axis`."""
    parts = [*([tfl.int32([other] * axis)] if axis else []), number]
    parts += [tfl.int32([other] * (rank - axis - 1))] if axis < rank - 1 else []
    return tfl.concatenate(parts)
