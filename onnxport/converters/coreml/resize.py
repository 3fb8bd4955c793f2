"""Resizing by MIL's own operators, and where sizes, scales or the region of interest are known at run time only."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder
from onnxport.converters.coreml.numbers.formulas import Term, computing
from onnxport.converters.coreml.shapes.dims import Size, as_shape, size_of
from onnxport.converters.coreml.values import Value
from onnxport.converters.lowering import NodeView
from onnxport.converters.resize.open import (
    OpenAxis,
    common_scale,
    goes_by_ratio,
    inside,
    repeats_at_any_size,
    stays,
    weights,
)
from onnxport.converters.resize.sampling import HALFWAY, REACH, Sampling

# ONNX coordinate_transformation_mode -> MIL's sampling_mode that samples linearly the same at any size, if the scale
# is the ratio of the sizes.
_LINEAR_AT_ANY_SIZE = {
    "align_corners": "STRICT_ALIGN_CORNERS",
    "asymmetric": "DEFAULT",
    "half_pixel": "UNALIGN_CORNERS",
}


def is_last(axes: Collection[int], rank: int) -> bool:
    """Whether no axes but the last two are among `axes`."""
    return set(axes) <= {rank - 2, rank - 1}


def sampled_from(mil: MilBuilder, x: Value, mode: str, sizes: Sequence[Size]) -> Value:
    """The last two axes sampled linearly to `sizes` by MIL's own operator."""
    if all(isinstance(size, int) for size in sizes):
        height, width = sizes
        return mil.resize_bilinear(  # type: ignore[no-any-return]
            x=x, target_size_height=height, target_size_width=width, sampling_mode=mode
        )
    return mil.resize(  # type: ignore[no-any-return]
        x=x,
        shape=as_shape(mil, sizes),
        resized_dims=np.uint32(2),
        interpolation_mode="LINEAR",
        sampling_mode=mode,
    )


# Of scale and region, what is computed is float32 [1].
_Axis: TypeAlias = OpenAxis[Size, Term]


def resized_at_run_time(node: NodeView[Value], mil: MilBuilder, sampling: Sampling) -> Value:
    """Resizes axes to sizes that follow from the input's, or are computed, at run time."""
    x = node.x
    with computing(mil, "fp32"):
        axes = _Reader(node, mil, sampling).read()
    native = _native(mil, x, sampling, axes)
    if native is not None:
        return native
    outside = []
    for each in axes:
        with computing(mil, "fp32"):
            positions = _positions(mil, sampling, each)
            if each.region is not None:
                outside.append(_outside(mil, each, positions, x.rank))
        if sampling.mode == "nearest":
            x = mil.gather(
                x=x, indices=_indices(mil, _rounded(mil, positions, sampling.rounding), each), axis=each.axis
            )
        elif sampling.mode == "linear" and not sampling.antialias and not sampling.exclude_outside:
            x = _interpolated(mil, x, each, positions)
        else:
            x = _weighted(mil, x, each, positions, sampling)
    fill = float(sampling.extrapolation) if x.is_float else int(sampling.extrapolation)
    for condition in outside:
        x = mil.select(cond=condition, a=fill, b=x)
    return x


# ---- the axes


class _Reader:
    """The axes that a node resizes, read in float32."""

    def __init__(self, node: NodeView[Value], mil: MilBuilder, sampling: Sampling) -> None:
        self.node, self.mil, self.sampling = node, mil, sampling
        self.targets = [axis % node.x.rank for axis in node.attribute("axes", range(node.x.rank))]
        self.before = {axis: size_of(mil, node.x, axis) for axis in self.targets}

    def read(self) -> list[_Axis]:
        node, targets = self.node, self.targets
        policy = node.attribute("keep_aspect_ratio_policy", "stretch")
        regions = self._regions()
        scales = node.optional(2)
        factors: dict[int, float | Term | None] = dict.fromkeys(targets)
        if scales is not None and scales.shape != (0,):
            node.optional(3)
            factors = dict(zip(targets, self._numbers(scales, len(targets)), strict=True))
            after = {axis: self._scaled(self.before[axis], factors[axis]) for axis in targets}
            changing = [axis for axis in targets if factors[axis] != 1]
        else:
            after = self._sizes(node.input(3))
            changing = [axis for axis in targets if not stays(node, axis)]
            if policy != "stretch":
                common = common_scale(
                    policy, [number(self.mil, after[a]) / number(self.mil, self.before[a]) for a in targets]
                )
                factors = dict.fromkeys(targets, common)
                after = {axis: self._rounded_size(self.before[axis], common) for axis in targets}
                changing = targets
        if regions:
            changing = targets
        return [
            _Axis(
                axis,
                self.before[axis],
                after[axis],
                factors[axis],
                self._unless_kept(regions.get(axis), axis, after),
            )
            for axis in sorted(changing)
        ]

    def _sizes(self, sizes: Value) -> dict[int, Size]:
        if sizes.constant is not None:
            return {axis: int(size) for axis, size in zip(self.targets, sizes.constant, strict=True)}
        return {
            axis: self.mil.slice_by_index(x=sizes, begin=[place], end=[place + 1])
            for place, axis in enumerate(self.targets)
        }

    def _regions(self) -> dict[int, tuple[float | Term, float | Term]]:
        """Start and end of each axis's region, which concerns one way of placing coordinates only."""
        roi = self.node.optional(1)
        if self.sampling.coordinates != "tf_crop_and_resize":
            return {}
        if roi is None or roi.shape == (0,):
            self.node.unsupported("has tf_crop_and_resize without a region of interest")
        count = len(self.targets)
        parts = self._numbers(roi, 2 * count)
        return {axis: (parts[place], parts[count + place]) for place, axis in enumerate(self.targets)}

    def _unless_kept(
        self, region: tuple[float | Term, float | Term] | None, axis: int, after: dict[int, Size]
    ) -> tuple[Term, Term] | None:
        """The region, or the whole axis where its size does not change: ONNX Runtime copies that."""
        if region is None:
            return None
        change = (number(self.mil, after[axis]) - number(self.mil, self.before[axis])).call("abs")
        start, end = (
            (change >= 0.5).where(element(self.mil, bound), kept)
            for bound, kept in zip(region, (0.0, 1.0), strict=True)
        )
        return start, end

    def _numbers(self, values: Value, count: int) -> Sequence[float | Term]:
        if values.constant is not None:
            numbers: list[float] = values.constant.astype(np.float32).tolist()
            return numbers
        return [
            Term(self.mil, self.mil.slice_by_index(x=values, begin=[i], end=[i + 1])) for i in range(count)
        ]

    def _rounded_size(self, size: Size, scale: Term) -> Size:
        whole = (number(self.mil, size) * scale + 0.5).call("floor")
        return self.mil.cast(x=whole.value, dtype="int32")  # type: ignore[no-any-return]

    def _scaled(self, size: Size, factor: float | Term | None) -> Size:
        """floor(size * factor)."""
        assert factor is not None
        if isinstance(size, int) and isinstance(factor, float):
            return int(np.floor(np.float32(size) * np.float32(factor)))
        if isinstance(factor, float) and factor == int(factor):
            return self.mil.mul(x=size, y=int(factor))  # type: ignore[no-any-return]
        whole = (number(self.mil, size) * factor).call("floor")
        return self.mil.cast(x=whole.value, dtype="int32")  # type: ignore[no-any-return]


def element(mil: MilBuilder, value: float | Term) -> Term:
    """As float32 [1]."""
    return value if isinstance(value, Term) else Term(mil, mil.constant(np.array([value], np.float32)))


def number(mil: MilBuilder, size: Size) -> Term:
    """A size as float32 [1]."""
    if isinstance(size, int):
        return element(mil, float(size))
    return Term(mil, mil.cast(x=size, dtype="fp32"))


# ---- MIL's own operators


def _native(mil: MilBuilder, x: Value, sampling: Sampling, axes: list[_Axis]) -> Value | None:
    """The last two axes by the operator that samples the same whatever the size, if there is such."""
    if x.rank < 3 or not x.is_float or not is_last([each.axis for each in axes], x.rank):
        return None
    by_axis = {each.axis: each for each in axes}
    pair = [by_axis.get(axis) for axis in (x.rank - 2, x.rank - 1)]
    if sampling.mode == "nearest":
        if not repeats_at_any_size(sampling, axes):
            return None
        height, width = (
            1 if each is None or not isinstance(each.scale, float) else int(each.scale) for each in pair
        )
        return mil.upsample_nearest_neighbor(  # type: ignore[no-any-return]
            x=x, scale_factor_height=height, scale_factor_width=width
        )
    mode = _LINEAR_AT_ANY_SIZE.get(sampling.coordinates)
    plain = sampling.mode == "linear" and not sampling.antialias and not sampling.exclude_outside
    if not plain or not goes_by_ratio(sampling, axes) or mode is None or not mil.at_least("iOS17"):
        return None
    sizes = [
        size_of(mil, x, axis) if each is None else each.after
        for axis, each in zip((x.rank - 2, x.rank - 1), pair, strict=True)
    ]
    return sampled_from(mil, x, mode, sizes)


# ---- sampling by positions computed at run time, in the order of operations of resizing.source_positions


def _positions(mil: MilBuilder, sampling: Sampling, axis: _Axis) -> Term:
    """The position in the input of every output element, float32 [after]."""
    y = _counted(mil, axis.after)
    before, after = number(mil, axis.before), number(mil, axis.after)
    scale = after / before if axis.scale is None else element(mil, axis.scale)
    if axis.region is not None:
        return _in_region(y, before, after, *axis.region)
    match sampling.coordinates:
        case "asymmetric":
            return y / scale
        case "align_corners":
            return y * (before - 1.0) / (after - 1.0).maximum(1.0)
        case "pytorch_half_pixel":
            return (after >= 1.5).where((y + 0.5) / scale - 0.5, y)
        case "half_pixel_symmetric":
            adjustment = after / (before * scale)
            return before * 0.5 * (-adjustment + 1.0) + ((y + 0.5) / scale - 0.5)
        case _:
            return (y + 0.5) / scale - 0.5


def _counted(mil: MilBuilder, count: Size) -> Term:
    """0, 1, 2 ... up to a size, in float32."""
    if isinstance(count, int):
        return Term(mil, mil.constant(np.arange(count, dtype=np.float32)))
    return Term(mil, mil.cast(x=_range(mil, mil.constant(np.zeros(1, np.int32)), count), dtype="fp32"))


def _range(mil: MilBuilder, start: Value, end: Value) -> Value:
    first, last = (mil.squeeze(x=each, axes=[0]) for each in (start, end))
    return mil.range_1d(start=first, end=last, step=1)  # type: ignore[no-any-return]


def _in_region(y: Term, before: Term, after: Term, start: Term, end: Term) -> Term:
    """tf_crop_and_resize: from the region's start to its end, or at its centre if there is one element only."""
    last = before - 1.0
    spread = last * start + y * (end - start) * last / (after - 1.0).maximum(1.0)
    centre = y + last * ((start + end) * 0.5)
    return (after >= 1.5).where(spread, centre)


def _rounded(mil: MilBuilder, positions: Term, rounding: str) -> Term:
    with computing(mil, "fp32"):
        if rounding in ("floor", "ceil"):
            return positions.call(rounding)
        lower = positions.call("floor")
        past_half = positions - lower - 0.5
        bound = (
            -float(HALFWAY)
            if rounding == "round_prefer_ceil"
            else float(np.nextafter(HALFWAY, np.float32(1)))
        )
        return (past_half >= bound).where(lower + 1.0, lower)


def _indices(mil: MilBuilder, positions: Term, axis: _Axis) -> Value:
    """Whole positions as indices, those outside the axis moved to its ends."""
    with computing(mil, "fp32"):
        within = positions.maximum(0.0).minimum(number(mil, axis.before) - 1.0)
        return mil.cast(x=within.value, dtype="int32")  # type: ignore[no-any-return]


def _along(mil: MilBuilder, values: Value, axis: int, rank: int) -> Value:
    """[n] as an operand that broadcasts along an axis."""
    return mil.reshape(x=values, shape=[-1 if a == axis else 1 for a in range(rank)])  # type: ignore[no-any-return]


def _interpolated(mil: MilBuilder, x: Value, axis: _Axis, positions: Term) -> Value:
    """Each output element between its two neighbours."""
    with computing(mil, "fp32"):
        lower = positions.call("floor")
        share = _along(mil, (positions - lower).value, axis.axis, x.rank)
        upper = lower + 1.0
    near, far = (
        mil.gather(x=x, indices=_indices(mil, each, axis), axis=axis.axis) for each in (lower, upper)
    )
    return mil.add(x=near, y=mil.mul(x=mil.sub(x=far, y=near), y=share))  # type: ignore[no-any-return]


def _outside(mil: MilBuilder, axis: _Axis, positions: Term, rank: int) -> Value:
    """Where samples lie outside the input, as a condition along the axis."""
    last = number(mil, axis.before) - 1.0
    low = mil.less(x=positions.value, y=0.0)
    high = mil.greater(x=positions.value, y=last.value)
    return _along(mil, mil.logical_or(x=low, y=high), axis.axis, rank)


# ---- sampling by weights, as resizing.weight_matrix has them


def _weighted(mil: MilBuilder, x: Value, axis: _Axis, positions: Term, sampling: Sampling) -> Value:
    """The axis, its edge elements repeated as far as the weights reach, times a matrix made at run time."""
    with computing(mil, "fp32"):
        stretch = _stretch(mil, axis, sampling)
        reach = (element(mil, float(REACH[sampling.mode])) / stretch).call("ceil") + 1.0
        count = mil.cast(x=reach.value, dtype="int32")
        size = (
            mil.constant(np.array([axis.before], np.int32)) if isinstance(axis.before, int) else axis.before
        )
        integers = _range(mil, mil.mul(x=count, y=-1), mil.add(x=count, y=size))
        whole = Term(mil, mil.cast(x=integers, dtype="fp32"))
        matrix = _weights(mil, whole, positions, stretch, axis, sampling)
    repeated = mil.gather(x=x, indices=_indices(mil, whole, axis), axis=axis.axis)
    order = [each for each in range(x.rank) if each != axis.axis] + [axis.axis]
    rows = mil.transpose(x=repeated, perm=order)
    if x.rank == 1:
        rows = mil.expand_dims(x=rows, axes=[0])
    result = mil.matmul(x=rows, y=matrix)
    if x.rank == 1:
        return mil.squeeze(x=result, axes=[0])  # type: ignore[no-any-return]
    return mil.transpose(x=result, perm=np.argsort(order).tolist())  # type: ignore[no-any-return]


def _stretch(mil: MilBuilder, axis: _Axis, sampling: Sampling) -> Term:
    """What narrows the distances: the scale, where it shrinks and antialias is asked for."""
    if not sampling.antialias:
        return element(mil, 1.0)
    scale = (
        number(mil, axis.after) / number(mil, axis.before) if axis.scale is None else element(mil, axis.scale)
    )
    return scale.minimum(1.0)


def _weights(
    mil: MilBuilder,
    whole: Term,
    positions: Term,
    stretch: Term,
    axis: _Axis,
    sampling: Sampling,
) -> Value:
    """[reached elements, after]: each column adds up to 1."""
    rows = Term(mil, mil.reshape(x=whole.value, shape=[-1, 1]))
    columns = Term(mil, mil.reshape(x=positions.value, shape=[1, -1]))
    distances = (rows - columns).call("abs") * stretch
    shares = weights(sampling, distances)
    if sampling.exclude_outside:
        shares = shares * inside(rows, number(mil, axis.before))
    total = shares.call("reduce_sum", axes=[0], keep_dims=True)
    return (shares / total).value
