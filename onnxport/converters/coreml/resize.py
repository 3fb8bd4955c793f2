"""Resizing by MIL's own operators, and where sizes, scales or the region of interest are known at run time only."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder, MilNode
from onnxport.converters.coreml.numbers.formulas import Term, computing
from onnxport.converters.coreml.shapes.dims import Size, as_shape, size_of
from onnxport.converters.coreml.values import Value
from onnxport.converters.resize.open import OpenAxis, OpenResize, is_by_ratio, is_repetition
from onnxport.converters.resize.sampling import HALFWAY, REACH, Sampling

# ONNX coordinate_transformation_mode -> MIL's sampling_mode that samples linearly the same at any size, if the scale
# is the ratio of the sizes.
_LINEAR_AT_ANY_SIZE = {
    "align_corners": "STRICT_ALIGN_CORNERS",
    "asymmetric": "DEFAULT",
    "half_pixel": "UNALIGN_CORNERS",
}


def is_last(axes: Collection[int], rank: int) -> bool:
    """Return whether `axes` has none but the last two."""
    return set(axes) <= {rank - 2, rank - 1}


def resize_linearly(mil: MilBuilder, x: Value, mode: str, sizes: Sequence[Size]) -> Value:
    """Sample the last two axes linearly to `sizes` by MIL's own operator."""
    if all(isinstance(size, int) for size in sizes):
        height, width = sizes
        return mil.resize_bilinear(
            x=x, target_size_height=height, target_size_width=width, sampling_mode=mode
        )
    return mil.resize(
        x=x,
        shape=as_shape(mil, sizes),
        resized_dims=np.uint32(2),
        interpolation_mode="LINEAR",
        sampling_mode=mode,
    )


_Axis: TypeAlias = OpenAxis[Size, Term]


def resize_at_run_time(node: MilNode, mil: MilBuilder, sampling: Sampling) -> Value:
    """Resize axes to sizes that follow from the input's, or are computed, at run time."""
    x = node.x
    with computing(mil, "fp32"):
        resize = _Resize(node, mil, sampling)
        axes = resize.axes()
    native = resize.natively(x, axes)
    if native is not None:
        return native
    outside = []
    for each in axes:
        with computing(mil, "fp32"):
            positions = resize.positions(each)
            if each.region is not None:
                outside.append(resize.is_outside(each, positions, x.rank))
        if sampling.mode == "nearest":
            x = mil.gather(x=x, indices=resize.indices(resize.round(positions), each), axis=each.axis)
        elif sampling.mode == "linear" and not sampling.antialias and not sampling.exclude_outside:
            x = resize.interpolate(x, each, positions)
        else:
            x = resize.apply_weights(x, each, positions)
    fill = float(sampling.extrapolation) if x.is_float else int(sampling.extrapolation)
    for condition in outside:
        x = mil.select(cond=condition, a=fill, b=x)
    return x


class _Resize(OpenResize[Value, Size, Term]):
    """A Resize node; its arithmetic is float32."""

    def __init__(self, node: MilNode, mil: MilBuilder, sampling: Sampling) -> None:
        super().__init__(node, sampling)
        self.mil = mil
        self._before = {axis: size_of(mil, node.x, axis) for axis in self.targets}

    @property
    def before(self) -> dict[int, Size]:
        return self._before

    def sizes(self, value: Value) -> list[Size]:
        if value.constant is not None:
            return [int(size) for size in value.constant]
        return [self._element_of(value, place) for place in range(len(self.targets))]

    def floats(self, value: Value, count: int) -> list[Term]:
        return [Term(self.mil, self._element_of(value, place)) for place in range(count)]

    def _element_of(self, value: Value, place: int) -> Value:
        return self.mil.slice_by_index(x=value, begin=[place], end=[place + 1])

    def number(self, size: Size) -> Term:
        if isinstance(size, int):
            return self.element(float(size))
        return Term(self.mil, self.mil.cast(x=size, dtype="fp32"))

    def as_size(self, number: Term) -> Size:
        return number.whole().value

    def multiple(self, size: Size, factor: int) -> Size:
        return self.mil.mul(x=size, y=factor)

    def scale_size(self, size: Size, factor: float | Term) -> Size:
        if isinstance(size, int) and isinstance(factor, float):
            return int(np.floor(np.float32(size) * np.float32(factor)))
        return super().scale_size(size, factor)

    def element(self, number: float | Term) -> Term:
        if isinstance(number, Term):
            return number
        return Term(self.mil, self.mil.constant(np.array([number], np.float32)))

    def whole_axis(self) -> tuple[float, float]:
        return 0.0, 1.0

    # ---- MIL's own operators

    def natively(self, x: Value, axes: list[_Axis]) -> Value | None:
        """Resize the last two axes by an operator that samples the same whatever the size, if there is one."""
        mil, sampling = self.mil, self.sampling
        if x.rank < 3 or not x.is_float or not is_last([each.axis for each in axes], x.rank):
            return None
        by_axis = {each.axis: each for each in axes}
        pair = [by_axis.get(axis) for axis in (x.rank - 2, x.rank - 1)]
        if sampling.mode == "nearest":
            if not is_repetition(sampling, axes):
                return None
            height, width = (
                1 if each is None or not isinstance(each.scale, float) else int(each.scale) for each in pair
            )
            return mil.upsample_nearest_neighbor(x=x, scale_factor_height=height, scale_factor_width=width)
        mode = _LINEAR_AT_ANY_SIZE.get(sampling.coordinates)
        plain = sampling.mode == "linear" and not sampling.antialias and not sampling.exclude_outside
        if not plain or not is_by_ratio(sampling, axes) or mode is None or not mil.at_least("iOS17"):
            return None
        sizes = [
            size_of(mil, x, axis) if each is None else each.after
            for axis, each in zip((x.rank - 2, x.rank - 1), pair, strict=True)
        ]
        return resize_linearly(mil, x, mode, sizes)

    # ---- sampling by positions, in the order of operations of sampling.source_positions

    def positions(self, axis: _Axis) -> Term:
        """Return the position in the input of every output element, float32 [after]."""
        y = self._arange(axis.after)
        before, after = self.number(axis.before), self.number(axis.after)
        scale = after / before if axis.scale is None else self.element(axis.scale)
        if axis.region is not None:  # from its start to its end; its centre for one element
            start, end = axis.region
            last = before - 1.0
            spread = last * start + y * (end - start) * last / (after - 1.0).maximum(1.0)
            centre = y + last * ((start + end) * 0.5)
            return (after >= 1.5).where(spread, centre)
        match self.sampling.coordinates:
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

    def _arange(self, count: Size) -> Term:
        """Return 0, 1, 2 ... below a size, in float32."""
        mil = self.mil
        if isinstance(count, int):
            return Term(mil, mil.constant(np.arange(count, dtype=np.float32)))
        return Term(mil, mil.cast(x=self._range(mil.constant(np.zeros(1, np.int32)), count), dtype="fp32"))

    def _range(self, start: Value, end: Value) -> Value:
        first, last = (self.mil.squeeze(x=each, axes=[0]) for each in (start, end))
        return self.mil.range_1d(start=first, end=last, step=1)

    def round(self, positions: Term) -> Term:
        rounding = self.sampling.rounding
        with computing(self.mil, "fp32"):
            if rounding in ("floor", "ceil"):
                return positions.call(rounding)
            lower = positions.call("floor")
            past_half = positions - lower - 0.5
            prefers_ceil = rounding == "round_prefer_ceil"
            bound = -float(HALFWAY) if prefers_ceil else float(np.nextafter(HALFWAY, np.float32(1)))
            return (past_half >= bound).where(lower + 1.0, lower)

    def indices(self, positions: Term, axis: _Axis) -> Value:
        """Return whole positions as indices, clamped to the axis."""
        with computing(self.mil, "fp32"):
            within = positions.maximum(0.0).minimum(self.number(axis.before) - 1.0)
            return self.mil.cast(x=within.value, dtype="int32")

    def _along(self, values: Value, axis: int, rank: int) -> Value:
        """Return [n] as an operand that broadcasts along an axis."""
        return self.mil.reshape(x=values, shape=[-1 if a == axis else 1 for a in range(rank)])

    def interpolate(self, x: Value, axis: _Axis, positions: Term) -> Value:
        """Interpolate each output element between its two neighbours."""
        mil = self.mil
        with computing(mil, "fp32"):
            lower = positions.call("floor")
            share = self._along((positions - lower).value, axis.axis, x.rank)
            upper = lower + 1.0
        near, far = (
            mil.gather(x=x, indices=self.indices(each, axis), axis=axis.axis) for each in (lower, upper)
        )
        return mil.add(x=near, y=mil.mul(x=mil.sub(x=far, y=near), y=share))

    def is_outside(self, axis: _Axis, positions: Term, rank: int) -> Value:
        """Return the samples outside the input, as a condition along the axis."""
        mil = self.mil
        last = self.number(axis.before) - 1.0
        low = mil.less(x=positions.value, y=0.0)
        high = mil.greater(x=positions.value, y=last.value)
        return self._along(mil.logical_or(x=low, y=high), axis.axis, rank)

    # ---- sampling by the weights of sampling.weight_matrix

    def apply_weights(self, x: Value, axis: _Axis, positions: Term) -> Value:
        """Multiply the axis, with its edge elements repeated as far as the weights reach, by a matrix of weights."""
        mil = self.mil
        with computing(mil, "fp32"):
            stretch = self._stretch(axis)
            reach = (self.element(float(REACH[self.sampling.mode])) / stretch).call("ceil") + 1.0
            count = mil.cast(x=reach.value, dtype="int32")
            size = axis.before
            if isinstance(size, int):
                size = mil.constant(np.array([size], np.int32))
            integers = self._range(mil.mul(x=count, y=-1), mil.add(x=count, y=size))
            whole = Term(mil, mil.cast(x=integers, dtype="fp32"))
            matrix = self._weights(whole, positions, stretch, axis)
        repeated = mil.gather(x=x, indices=self.indices(whole, axis), axis=axis.axis)
        order = [each for each in range(x.rank) if each != axis.axis] + [axis.axis]
        rows = mil.transpose(x=repeated, perm=order)
        if x.rank == 1:
            rows = mil.expand_dims(x=rows, axes=[0])
        result = mil.matmul(x=rows, y=matrix)
        if x.rank == 1:
            return mil.squeeze(x=result, axes=[0])
        return mil.transpose(x=result, perm=np.argsort(order).tolist())

    def _stretch(self, axis: _Axis) -> Term:
        """Return the factor of the distances: with antialias, the scale where it shrinks."""
        if not self.sampling.antialias:
            return self.element(1.0)
        if axis.scale is not None:
            return self.element(axis.scale).minimum(1.0)
        return (self.number(axis.after) / self.number(axis.before)).minimum(1.0)

    def _weights(self, whole: Term, positions: Term, stretch: Term, axis: _Axis) -> Value:
        """Return [reached elements, after]; each column adds up to 1."""
        rows = Term(self.mil, self.mil.reshape(x=whole.value, shape=[-1, 1]))
        columns = Term(self.mil, self.mil.reshape(x=positions.value, shape=[1, -1]))
        shares = self.shares(rows, columns, stretch, axis)
        return (shares / shares.call("reduce_sum", axes=[0], keep_dims=True)).value
