"""The graph that is rewritten: bases, and the views of them that its values are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.initializers import add_initializer
from onnxport.validate.translation.constants import Constants, find_constants, is_stored
from onnxport.validate.translation.layouts.sizes import static_sizes
from onnxport.validate.translation.rounding_bounds import Rounded

Axes = tuple[int | None, ...]
Shape = tuple[int, ...]
# Rewrites a node so that it computes on bases.
Rule: TypeAlias = "Callable[[Layouts, ir.Node], None]"


@dataclass(frozen=True)
class View:
    """A value as its base and the base's axes."""

    base: ir.Value
    axes: Axes


@dataclass(frozen=True)
class Merged:
    """A value that is a view of a base with sizes that no view has: axes which do not lie together became one."""

    base: ir.Value
    axes: Axes
    shape: Shape


class Layouts:
    def __init__(self, graph: ir.Graph, opset: int) -> None:
        self.graph, self.opset = graph, opset
        self.constants, self._known = Constants(opset), find_constants(graph)
        self._views: dict[ir.Value, View] = {}
        self.merged: dict[ir.Value, Merged] = {}
        self._arranged: dict[tuple[ir.Value, Axes], ir.Value] = {}
        self._reshaped: dict[ir.Value, ir.Value] = {}  # result of a Reshape of ours -> what it reads
        self._count = 0
        self.at: ir.Node | None = None

    def run(self, rules: Mapping[str, Rule], plain: Rule) -> dict[str, tuple[Shape, Axes]]:
        for node in list(self.graph):
            self.at = node
            if all(self.is_constant(each) for each in node.outputs):
                continue
            rule = rules.get(node.op_type, plain) if node.domain in ("", "ai.onnx") else plain
            known = all(each is None or each.shape is not None for each in node.inputs) and all(
                static_sizes(each) is not None for each in node.outputs
            )
            (rule if known else plain)(self, node)
        self.at = None
        named = {
            value.name: (static_sizes(view.base) or (), view.axes)
            for value, view in self._views.items()
            if value.name
        }
        named |= {
            value.name: (static_sizes(each.base) or (), each.axes)
            for value, each in self.merged.items()
            if value.name
        }
        self._finish()
        return named

    def _finish(self) -> None:
        """Give outputs their own order back, under their names."""
        for place, value in enumerate(list(self.graph.outputs)):
            found = self.plain(value)
            if found is value:
                continue
            name, found_name = value.name, f"{value.name}/laid"
            value.name = found_name
            last = self.add("Identity", [found], static_sizes(found) or (), found)
            last.name, last.type = name, value.type
            self.graph.outputs[place] = last

    # ---- values

    def view(self, value: ir.Value) -> View:
        found = self._views.get(value)
        if found is None and (merged := self.merged.get(value)) is not None:
            found = self._views[value] = self._compute(value, merged)
        if found is None:
            rank = 0 if value.shape is None else len(value.shape)
            found = View(value, tuple(range(rank)))
        return found

    def _compute(self, value: ir.Value, merged: Merged) -> View:
        """Give a merged value a base, its groups of axes in the order that the base before has: one for all layouts."""
        before = static_sizes(merged.base) or ()
        shape = [1 if axis is None else before[axis] for axis in merged.axes]
        groups = sorted(
            ([axis for each in ours if (axis := merged.axes[each]) is not None], theirs)
            for ours, theirs in _groups(shape, merged.shape)
        )
        order = tuple(axis for ours, _ in groups for axis in ours)
        other = stand_in(value, [before[axis] for axis in order])
        self._views[other] = View(merged.base, order)
        # Those of size 1 come first: a batch of 1 is an axis of its own.
        places = [each for each, size in enumerate(merged.shape) if size == 1]
        places += [each for _, theirs in groups for each in theirs]
        base = self.reshape(self.plain(other), tuple(merged.shape[each] for each in places))
        return View(base, tuple(places.index(each) for each in range(len(places))))

    def is_constant(self, value: ir.Value | None) -> bool:
        return value is not None and (value in self._known or is_stored(value))

    def constant(self, value: ir.Value | None) -> Rounded | None:
        return self.constants.get(value) if self.is_constant(value) else None

    def number(self, value: ir.Value | None) -> float | None:
        return self.constants.number(value) if self.is_constant(value) else None

    def integers(self, value: ir.Value | None) -> list[int] | None:
        found = self.constant(value)
        return None if found is None else [int(each) for each in found.values.reshape(-1)]

    def read_in_order(self, node: ir.Node) -> None:
        """Have a node read its operands in their own order."""
        for place, value in enumerate(node.inputs):
            if value is not None:
                node.replace_input_with(place, self.plain(value))

    def plain(self, value: ir.Value) -> ir.Value:
        """Return a value in its own order."""
        if value not in self._views and value not in self.merged:
            return value
        return self.arrange(value, tuple(range(len(self.view(value).axes))))

    def arrange(self, value: ir.Value, wanted: Axes) -> ir.Value:
        """Return a tensor whose axis i is axis `wanted[i]` of `value`, or of size 1."""
        view = self.view(value)
        axes = tuple(None if each is None else view.axes[each] for each in wanted)
        base, shape = view.base, static_sizes(view.base)
        if axes == tuple(range(len(view.base.shape or ()))) or shape is None:
            return base
        key = base, axes
        if key not in self._arranged:
            named = [each for each in axes if each is not None]
            rest = [each for each in range(len(shape)) if each not in named]
            found = base
            moving = [each for each in named if shape[each] != 1]
            if moving != sorted(moving):
                order = [*named, *rest]
                sizes = tuple(shape[each] for each in order)
                found = self.add("Transpose", [base], sizes, base, perm=order)
            self._arranged[key] = self.reshape(
                found, tuple(1 if each is None else shape[each] for each in axes)
            )
        return self._arranged[key]

    def reshape(self, value: ir.Value, shape: tuple[int, ...], *, after: ir.Node | None = None) -> ir.Value:
        """Return a tensor with other sizes; of one that has been reshaped, the tensor before.

        Args:
            after: the node to put it behind; before the one at hand unless given.
        """
        value = self._reshaped.get(value, value)
        if static_sizes(value) == shape:
            return value
        sizes = self.store(np.array(shape, np.int64))
        found = self.add("Reshape", [value, sizes], shape, value, after=after)
        self._reshaped[found] = value
        return found

    def add(
        self,
        op: str,
        operands: Sequence[ir.Value | None],
        shape: Sequence[int],
        like: ir.Value,
        *,
        after: ir.Node | None = None,
        **attributes: Any,
    ) -> ir.Value:
        """Add a node before the one at hand."""
        self._count += 1
        node = ir.node(op, operands, attributes)
        node.name = node.outputs[0].name = f"{like.name}/{op}.layout{self._count}"
        node.outputs[0].type, node.outputs[0].shape = like.type, ir.Shape(list(shape))
        if after is not None:
            self.graph.insert_after(after, node)
        elif self.at is None:
            self.graph.append(node)
        else:
            self.graph.insert_before(self.at, node)
        return node.outputs[0]

    def store(self, array: Array) -> ir.Value:
        self._count += 1
        return add_initializer(self.graph, f"/layout.{self._count}", array)

    # ---- results

    def define(self, value: ir.Value, view: View) -> None:
        self._views[value] = view

    def lay(self, value: ir.Value, axes: Axes, rank: int) -> None:
        """Say that a node now gives the base of `value`, whose axes are these of it."""
        shape, sizes = static_sizes(value), [1] * rank
        assert shape is not None
        for axis, size in zip(axes, shape, strict=True):
            if axis is not None:
                sizes[axis] = size
        value.shape = ir.Shape(sizes)
        self._views[value] = View(value, axes)

    def before(self, base: ir.Value) -> ir.Value:
        """Return what a Reshape of ours reads; the base itself where there is none."""
        return self._reshaped.get(base, base)

    def replace_base(self, node: ir.Node, place: int) -> None:
        """Have a function of each element compute on the base, before a Reshape of ours."""
        value, result = node.inputs[place], node.outputs[0]
        assert value is not None
        if (merged := self.merged.get(value)) is not None:
            node.replace_input_with(place, merged.base)
            result.shape = merged.base.shape
            self.merged[result] = replace(merged, base=result)
            return
        view = self.view(value)
        before = self.before(view.base)
        node.replace_input_with(place, before)
        sizes, shape = static_sizes(before), static_sizes(view.base)
        if sizes is None or shape is None or len(view.axes) != len(static_sizes(result) or ()):
            node.replace_input_with(place, self.plain(value))
            return
        result.shape = ir.Shape(sizes)
        after = result if before is view.base else self.reshape(result, shape, after=node)
        self._views[result] = View(after, view.axes)

    def move_before_reshape(self, node: ir.Node, place: int, axes: Axes) -> bool:
        """Have arithmetic of a base and constants compute before a Reshape of ours; return whether it does now.

        Args:
            place: of the base; the constants have as many axes.
            axes: of the result in the base.
        """
        base, result = node.inputs[place], node.outputs[0]
        assert base is not None
        before = self.before(base)
        sizes, shape = static_sizes(before), static_sizes(base)
        others = {
            number: (value, own)
            for number, value in enumerate(node.inputs)
            if value is not None and number != place and (own := static_sizes(value)) is not None
        }
        if before is base or sizes is None or shape is None or len(others) < len(node.inputs) - 1:
            return False
        if any(len(own) not in (0, len(shape)) for _, own in others.values()):
            return False
        for each, (value, own) in others.items():
            if prod(own) > 1:
                wide, wanted = _before_reshape(own, shape, sizes)
                value = self.add("Expand", [value, self.store(np.array(wide, np.int64))], wide, value)
                value = self.add("Reshape", [value, self.store(np.array(wanted, np.int64))], wanted, value)
                node.replace_input_with(each, value)
        node.replace_input_with(place, before)
        result.shape = ir.Shape(sizes)
        self._views[result] = View(self.reshape(result, shape, after=node), axes)
        return True

    def see(self, value: ir.Value, wanted: tuple[int, ...], *, after: ir.Node | None = None) -> View:
        """Return `value` with other sizes, as a view where that is possible; see `reshape`."""
        found = self.see_merged(value, wanted, after=after)
        if isinstance(found, View):
            return found
        return View(self.reshape(self.plain(value), wanted), tuple(range(len(wanted))))

    def see_merged(
        self, value: ir.Value, wanted: tuple[int, ...], *, after: ir.Node | None = None
    ) -> View | Merged:
        """Return `value` with other sizes; see `reshape`."""
        view, shape, base = self.view(value), static_sizes(value), static_sizes(self.view(value).base)
        assert base is not None
        shape = tuple(1 if each is None else base[each] for each in view.axes)
        groups = _groups(shape, wanted)
        order = [axis for axis, size in enumerate(base) if size != 1]
        parts = []
        for before, behind in groups:
            places = [order.index(axis) for each in before if (axis := view.axes[each]) is not None]
            if places != list(range(places[0], places[0] + len(places))):
                return Merged(view.base, view.axes, wanted)
            parts.append((places[0], before, behind))
        axes: list[int | None] = [None] * len(wanted)
        if all(len(before) == len(behind) == 1 for _, before, behind in parts):
            for _, before, behind in parts:
                axes[behind[0]] = view.axes[before[0]]
            return View(view.base, tuple(axes))
        sizes: list[int] = []
        for _, _, behind in sorted(parts):
            for each in behind:
                axes[each] = len(sizes)
                sizes.append(wanted[each])
        origin = self.before(view.base)
        whole = static_sizes(origin) or ()
        if [size for size in whole if size != 1] == sizes:  # there and back
            places = [place for place, size in enumerate(whole) if size != 1]
            return View(origin, tuple(None if axis is None else places[axis] for axis in axes))
        return View(self.reshape(view.base, tuple(sizes), after=after), tuple(axes))


def _groups(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Return which axes become which, in the smallest groups; axes of size 1 are left out."""
    ours, theirs = ([place for place, size in enumerate(sizes) if size != 1] for sizes in (before, after))
    groups = []
    while ours or theirs:
        left, right = [ours.pop(0)], [theirs.pop(0)]
        while (first := prod(before[each] for each in left)) != (
            second := prod(after[each] for each in right)
        ):
            if first < second:
                left.append(ours.pop(0))
            else:
                right.append(theirs.pop(0))
        groups.append((left, right))
    return groups


def _before_reshape(own: Shape, shape: Shape, sizes: Shape) -> tuple[list[int], list[int]]:
    """Return the sizes to repeat a constant of sizes `own` to beside `shape`, and its sizes beside what that was."""
    wide, wanted = [1] * len(shape), [1] * len(sizes)
    for after, before in _groups(shape, sizes):
        if any(own[each] != 1 for each in after):
            for each in after:
                wide[each] = shape[each]
            for each in before:
                wanted[each] = sizes[each]
    return wide, wanted


def in_order(base: Array, axes: Axes) -> Array:
    """Return a value of which `base` has the elements: its axis i is axis `axes[i]` of the base, or of size 1."""
    named = [each for each in axes if each is not None]
    order = [*named, *(each for each in range(base.ndim) if each not in named)]
    shape = [1 if each is None else base.shape[each] for each in axes]
    return np.ascontiguousarray(base.transpose(order)).reshape(shape)


def stand_in(like: ir.Value, shape: Sequence[int]) -> ir.Value:
    return ir.Value(name=None, type=like.type, shape=ir.Shape(list(shape)))
