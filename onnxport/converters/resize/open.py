"""Resizing to sizes that are known at run time only: what does not hang on them, and formulas of what does."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from onnxport.converters.formulas import Formula
from onnxport.converters.lowering import NodeView
from onnxport.converters.resize.sampling import Sampling
from onnxport.formats.model import dims_of

F = TypeVar("F", bound=Formula)
S = TypeVar("S")  # what a target holds a size in

_CENTERED = frozenset(("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"))


@dataclass(frozen=True)
class OpenAxis(Generic[S, F]):
    """An axis to resize: its sizes, the scale if it is not their ratio, the region of interest.

    The scale is a number if the node has it as a constant; computed scales and regions are float32 [1].
    """

    axis: int
    before: S
    after: S
    scale: float | F | None
    region: tuple[F, F] | None = None

    @property
    def is_whole(self) -> bool:
        return isinstance(self.scale, float) and self.scale >= 1 and self.scale == int(self.scale)


def stays(node: NodeView[Any], axis: int) -> bool:
    """Whether shape inference knows the axis to keep its size: by number or by symbol."""
    source, result = node.node.inputs[0], node.node.outputs[0]
    assert source is not None
    before, after = dims_of(source)[axis], dims_of(result)[axis]
    return before is not None and before == after


def repeats_at_any_size(sampling: Sampling, axes: Collection[OpenAxis[Any, Any]]) -> bool:
    """Whether nearest copies element floor(i / f), the factors f being whole."""
    from_corner = sampling.coordinates == "asymmetric" and sampling.rounding == "floor"
    centered = sampling.coordinates in _CENTERED and sampling.rounding.startswith("round")
    return all(each.is_whole for each in axes) and (from_corner or centered)


def goes_by_ratio(sampling: Sampling, axes: Collection[OpenAxis[Any, Any]]) -> bool:
    """Whether the ratio of the sizes says where samples lie, whatever the scale."""
    whole = all(each.is_whole for each in axes)
    return whole or all(each.scale is None for each in axes) or sampling.coordinates == "align_corners"


def common_scale(policy: str, ratios: Sequence[F]) -> F:
    """The smallest (not_larger) or largest (not_smaller) ratio of the wanted sizes to the present ones."""
    common = ratios[0]
    for ratio in ratios[1:]:
        common = common.minimum(ratio) if policy == "not_larger" else common.maximum(ratio)
    return common


# ---- weights, as sampling.weight_matrix has them


def weights(sampling: Sampling, distances: F) -> F:
    """Of elements at these distances from a sample, not yet adding up to 1."""
    if sampling.mode == "linear":
        return (-distances + 1.0).maximum(0.0)
    x, a = distances, sampling.cubic_a
    near = ((x * (a + 2) - (a + 3)) * x * x) + 1.0
    far = ((x * a - 5 * a) * x + 8 * a) * x - 4 * a
    beyond_one = (-x + 1.0).where_at_least(0.0, near, far)
    return (x - 2.0).where_at_least(0.0, x - x, beyond_one)


def inside(elements: F, size: F) -> F:
    """1 for elements of an axis, 0 for the repeated ones on either side."""
    from_start = elements.minimum(0.0) + 1.0  # 1 from element 0 on, at most 0 before it
    to_end = (size - elements).minimum(1.0)  # 1 up to the last element, at most 0 after it
    return from_start.minimum(to_end).maximum(0.0)
