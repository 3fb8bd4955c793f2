"""Resize where sizes, scales or the region of interest are known at run time only, whatever the target."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Generic, TypeVar

import numpy as np

from onnxport.converters.formulas import Formula
from onnxport.converters.lowering import NodeView, TargetValue
from onnxport.converters.resize.sampling import Sampling
from onnxport.formats.model import dims_of

F = TypeVar("F", bound=Formula)
S = TypeVar("S")  # a target's size
V = TypeVar("V", bound=TargetValue)  # a target's value


_CENTERED = frozenset(("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"))


@dataclass(frozen=True)
class OpenAxis(Generic[S, F]):
    """An axis to resize.

    Attributes:
        scale: None if it is the ratio of the sizes; float32 [1] if it is computed.
        region: start and end of the region of interest as shares of the axis, float32 [1].
    """

    axis: int
    before: S
    after: S
    scale: float | F | None
    region: tuple[F, F] | None = None

    @property
    def is_whole(self) -> bool:
        return isinstance(self.scale, float) and self.scale >= 1 and self.scale == int(self.scale)


def keeps_size(node: NodeView[Any], axis: int) -> bool:
    """Return whether shape inference knows that the axis keeps its size, as a number or a symbol."""
    source, result = node.node.inputs[0], node.node.outputs[0]
    assert source is not None
    before, after = dims_of(source)[axis], dims_of(result)[axis]
    return before is not None and before == after


def is_repetition(sampling: Sampling, axes: Collection[OpenAxis[Any, Any]]) -> bool:
    """Return whether nearest copies element floor(i / f) for whole factors f."""
    from_corner = sampling.coordinates == "asymmetric" and sampling.rounding == "floor"
    centered = sampling.coordinates in _CENTERED and sampling.rounding.startswith("round")
    return all(each.is_whole for each in axes) and (from_corner or centered)


def is_by_ratio(sampling: Sampling, axes: Collection[OpenAxis[Any, Any]]) -> bool:
    """Return whether the ratio of the sizes decides where samples lie, whatever the scale."""
    whole = all(each.is_whole for each in axes)
    return whole or all(each.scale is None for each in axes) or sampling.coordinates == "align_corners"


# ---- the weights of sampling.weight_matrix


def weights(sampling: Sampling, distances: F) -> F:
    """Return the weights of elements at these distances from a sample, before normalization."""
    if sampling.mode == "linear":
        return (-distances + 1.0).maximum(0.0)
    x, a = distances, sampling.cubic_a
    near = ((x * (a + 2) - (a + 3)) * x * x) + 1.0
    far = ((x * a - 5 * a) * x + 8 * a) * x - 4 * a
    beyond_one = (-x + 1.0).where_at_least(0.0, near, far)
    return (x - 2.0).where_at_least(0.0, x - x, beyond_one)


def is_inside(elements: F, size: F) -> F:
    """Return 1 for elements of an axis, 0 for the repeated ones on either side."""
    from_start = elements.minimum(0.0) + 1.0  # 1 from element 0 on, at most 0 before it
    to_end = (size - elements).minimum(1.0)  # 1 up to the last element, at most 0 after it
    return from_start.minimum(to_end).maximum(0.0)


# ---- the axes of a node


class OpenResize(ABC, Generic[V, S, F]):
    """A Resize node whose sizes, scales or region are computed at run time.

    Attributes:
        targets: the axes that the node names.
    """

    # Axes that count as changed in any case, so that one op resizes both.
    paired: frozenset[int] = frozenset()

    def __init__(self, node: NodeView[V], sampling: Sampling) -> None:
        self.node, self.sampling = node, sampling
        self.targets = [int(axis) % node.x.rank for axis in node.attribute("axes", range(node.x.rank))]

    # ---- a target's operations

    @property
    @abstractmethod
    def before(self) -> Mapping[int, S]:
        """The sizes of the targets."""

    @abstractmethod
    def sizes(self, value: V) -> list[S]:
        """Return the elements of the node's operand `sizes`."""

    @abstractmethod
    def floats(self, value: V, count: int) -> list[F]:
        """Return the elements of a computed operand, each float32 [1]."""

    @abstractmethod
    def number(self, size: S) -> F:
        """Return a size as float32 [1]."""

    @abstractmethod
    def as_size(self, number: F) -> S: ...

    @abstractmethod
    def multiple(self, size: S, factor: int) -> S: ...

    @abstractmethod
    def element(self, number: float | F) -> F:
        """Return a number as float32 [1]."""

    @abstractmethod
    def whole_axis(self) -> Iterable[F | float]:
        """Return 0 and 1, the region of a whole axis."""

    # ---- of every target

    def axes(self) -> list[OpenAxis[S, F]]:
        """Return the axes that change, by number."""
        node, targets = self.node, self.targets
        policy = node.attribute("keep_aspect_ratio_policy", "stretch")
        regions = self._regions()
        before = self.before
        scales = node.optional(2)
        factors: dict[int, float | F | None] = dict.fromkeys(targets)
        if scales is not None and scales.shape != (0,):
            node.optional(3)
            given = self._numbers(scales, len(targets))
            factors = dict(zip(targets, given, strict=True))
            after = {
                axis: self.scale_size(before[axis], each) for axis, each in zip(targets, given, strict=True)
            }
            changing = [axis for axis in targets if factors[axis] != 1 or axis in self.paired]
        else:
            after = dict(zip(targets, self.sizes(node.input(3)), strict=True))
            changing = [axis for axis in targets if axis in self.paired or not keeps_size(node, axis)]
            if policy != "stretch":
                ratios = [self.number(after[axis]) / self.number(before[axis]) for axis in targets]
                smaller = policy == "not_larger"
                common = reduce(lambda a, b: a.minimum(b) if smaller else a.maximum(b), ratios)
                factors = dict.fromkeys(targets, common)
                after = {
                    axis: self.as_size((self.number(before[axis]) * common + 0.5).call("floor"))
                    for axis in targets
                }
                changing = targets
        if regions:
            changing = targets
        return [
            OpenAxis(axis, before[axis], after[axis], factors[axis], self._region(regions, axis, after[axis]))
            for axis in sorted(changing)
        ]

    def shares(self, rows: F, columns: F, stretch: F, axis: OpenAxis[S, F]) -> F:
        """Return the weights of elements `rows` in samples at `columns`, before normalization."""
        found = weights(self.sampling, (rows - columns).call("abs") * stretch)
        return found * is_inside(rows, self.number(axis.before)) if self.sampling.exclude_outside else found

    def scale_size(self, size: S, factor: float | F) -> S:
        """Return floor(size * factor)."""
        if isinstance(factor, float) and factor == int(factor):
            return self.multiple(size, int(factor))
        return self.as_size((self.number(size) * factor).call("floor"))

    def _numbers(self, value: V, count: int) -> Sequence[float | F]:
        if value.constant is None:
            return self.floats(value, count)
        numbers: list[float] = value.constant.astype(np.float32).tolist()
        return numbers

    def _regions(self) -> dict[int, tuple[float | F, float | F]]:
        """Return start and end of each axis's region, which only one coordinate transformation has."""
        roi = self.node.optional(1)
        if self.sampling.coordinates != "tf_crop_and_resize":
            return {}
        if roi is None or roi.shape == (0,):
            self.node.unsupported("has tf_crop_and_resize without a region of interest")
        count = len(self.targets)
        parts = self._numbers(roi, 2 * count)
        return {axis: (parts[place], parts[count + place]) for place, axis in enumerate(self.targets)}

    def _region(
        self, regions: Mapping[int, tuple[float | F, float | F]], axis: int, after: S
    ) -> tuple[F, F] | None:
        """Return an axis's region, or the whole axis where its size does not change: ONNX Runtime copies that."""
        if axis not in regions:
            return None
        change = (self.number(after) - self.number(self.before[axis])).call("abs")
        start, end = (
            change.where_at_least(0.5, self.element(bound), kept)
            for bound, kept in zip(regions[axis], self.whole_axis(), strict=True)
        )
        return start, end
