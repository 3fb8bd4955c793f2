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
    """Tell if `axes` has none but the last two."""
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
    native = _resize_natively(mil, x, sampling, axes)
    if native is not None:
        return native
    outside = []
    for each in axes:
        with computing(mil, "fp32"):
            positions = _positions(mil, sampling, each)
            if each.region is not None:
                outside.append(_is_outside(mil, each, positions, x.rank))
        if sampling.mode == "nearest":
            x = mil.gather(
                x=x, indices=_indices(mil, _round(mil, positions, sampling.rounding), each), axis=each.axis
            )
        elif sampling.mode == "linear" and not sampling.antialias and not sampling.exclude_outside:
            x = _interpolate(mil, x, each, positions)
        else:
            x = _apply_weights(resize, x, each, positions)
    fill = float(sampling.extrapolation) if x.is_float else int(sampling.extrapolation)
    for condition in outside:
        x = mil.select(cond=condition, a=fill, b=x)
    return x


class _Resize(OpenResize[Value, Size, Term]):
    """Its arithmetic is float32."""

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
        return [
            self.mil.slice_by_index(x=value, begin=[place], end=[place + 1])
            for place in range(len(self.targets))
        ]

    def floats(self, value: Value, count: int) -> list[Term]:
        return [
            Term(self.mil, self.mil.slice_by_index(x=value, begin=[i], end=[i + 1])) for i in range(count)
        ]

    def number(self, size: Size) -> Term:
        return number(self.mil, size)

    def as_size(self, number: Term) -> Size:
        return number.whole().value

    def multiple(self, size: Size, factor: int) -> Size:
        return self.mil.mul(x=size, y=factor)

    def scaled(self, size: Size, factor: float | Term) -> Size:
        if isinstance(size, int) and isinstance(factor, float):
            return int(np.floor(np.float32(size) * np.float32(factor)))
        return super().scaled(size, factor)

    def element(self, number: float | Term) -> Term:
        return element(self.mil, number)

    def whole_axis(self) -> tuple[float, float]:
        return 0.0, 1.0


def element(mil: MilBuilder, value: float | Term) -> Term:
    """Return a number as float32 [1]."""
    return value if isinstance(value, Term) else Term(mil, mil.constant(np.array([value], np.float32)))


def number(mil: MilBuilder, size: Size) -> Term:
    """Return a size as float32 [1]."""
    if isinstance(size, int):
        return element(mil, float(size))
    return Term(mil, mil.cast(x=size, dtype="fp32"))


# ---- MIL's own operators


def _resize_natively(mil: MilBuilder, x: Value, sampling: Sampling, axes: list[_Axis]) -> Value | None:
    """Resize the last two axes by an operator that samples the same whatever the size, if there is one."""
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


def _positions(mil: MilBuilder, sampling: Sampling, axis: _Axis) -> Term:
    """Return the position in the input of every output element, float32 [after]."""
    y = _arange(mil, axis.after)
    before, after = number(mil, axis.before), number(mil, axis.after)
    scale = after / before if axis.scale is None else element(mil, axis.scale)
    if axis.region is not None:
        return _region_positions(y, before, after, *axis.region)
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


def _arange(mil: MilBuilder, count: Size) -> Term:
    """Return 0, 1, 2 ... below a size, in float32."""
    if isinstance(count, int):
        return Term(mil, mil.constant(np.arange(count, dtype=np.float32)))
    return Term(mil, mil.cast(x=_range(mil, mil.constant(np.zeros(1, np.int32)), count), dtype="fp32"))


def _range(mil: MilBuilder, start: Value, end: Value) -> Value:
    first, last = (mil.squeeze(x=each, axes=[0]) for each in (start, end))
    return mil.range_1d(start=first, end=last, step=1)


def _region_positions(y: Term, before: Term, after: Term, start: Term, end: Term) -> Term:
    """Return tf_crop_and_resize's positions: from the region's start to its end; its centre for one element."""
    last = before - 1.0
    spread = last * start + y * (end - start) * last / (after - 1.0).maximum(1.0)
    centre = y + last * ((start + end) * 0.5)
    return (after >= 1.5).where(spread, centre)


def _round(mil: MilBuilder, positions: Term, rounding: str) -> Term:
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
    """Return whole positions as indices, clamped to the axis."""
    with computing(mil, "fp32"):
        within = positions.maximum(0.0).minimum(number(mil, axis.before) - 1.0)
        return mil.cast(x=within.value, dtype="int32")


def _along(mil: MilBuilder, values: Value, axis: int, rank: int) -> Value:
    """Return [n] as an operand that broadcasts along an axis."""
    return mil.reshape(x=values, shape=[-1 if a == axis else 1 for a in range(rank)])


def _interpolate(mil: MilBuilder, x: Value, axis: _Axis, positions: Term) -> Value:
    """Interpolate each output element between its two neighbours."""
    with computing(mil, "fp32"):
        lower = positions.call("floor")
        share = _along(mil, (positions - lower).value, axis.axis, x.rank)
        upper = lower + 1.0
    near, far = (
        mil.gather(x=x, indices=_indices(mil, each, axis), axis=axis.axis) for each in (lower, upper)
    )
    return mil.add(x=near, y=mil.mul(x=mil.sub(x=far, y=near), y=share))


def _is_outside(mil: MilBuilder, axis: _Axis, positions: Term, rank: int) -> Value:
    """Return the samples outside the input, as a condition along the axis."""
    last = number(mil, axis.before) - 1.0
    low = mil.less(x=positions.value, y=0.0)
    high = mil.greater(x=positions.value, y=last.value)
    return _along(mil, mil.logical_or(x=low, y=high), axis.axis, rank)


# ---- sampling by the weights of sampling.weight_matrix


def _apply_weights(resize: _Resize, x: Value, axis: _Axis, positions: Term) -> Value:
    """Multiply the axis, with its edge elements repeated as far as the weights reach, by a matrix of weights."""
    mil, sampling = resize.mil, resize.sampling
    with computing(mil, "fp32"):
        stretch = _stretch(mil, axis, sampling)
        reach = (element(mil, float(REACH[sampling.mode])) / stretch).call("ceil") + 1.0
        count = mil.cast(x=reach.value, dtype="int32")
        size = (
            mil.constant(np.array([axis.before], np.int32)) if isinstance(axis.before, int) else axis.before
        )
        integers = _range(mil, mil.mul(x=count, y=-1), mil.add(x=count, y=size))
        whole = Term(mil, mil.cast(x=integers, dtype="fp32"))
        matrix = _weights(resize, whole, positions, stretch, axis)
    repeated = mil.gather(x=x, indices=_indices(mil, whole, axis), axis=axis.axis)
    order = [each for each in range(x.rank) if each != axis.axis] + [axis.axis]
    rows = mil.transpose(x=repeated, perm=order)
    if x.rank == 1:
        rows = mil.expand_dims(x=rows, axes=[0])
    result = mil.matmul(x=rows, y=matrix)
    if x.rank == 1:
        return mil.squeeze(x=result, axes=[0])
    return mil.transpose(x=result, perm=np.argsort(order).tolist())


def _stretch(mil: MilBuilder, axis: _Axis, sampling: Sampling) -> Term:
    """Return the factor of the distances: with antialias, the scale where it shrinks."""
    if not sampling.antialias:
        return element(mil, 1.0)
    scale = (
        number(mil, axis.after) / number(mil, axis.before) if axis.scale is None else element(mil, axis.scale)
    )
    return scale.minimum(1.0)


def _weights(resize: _Resize, whole: Term, positions: Term, stretch: Term, axis: _Axis) -> Value:
    """Return [reached elements, after]; each column adds up to 1."""
    mil = resize.mil
    rows = Term(mil, mil.reshape(x=whole.value, shape=[-1, 1]))
    columns = Term(mil, mil.reshape(x=positions.value, shape=[1, -1]))
    shares = resize.shares(rows, columns, stretch, axis)
    return (shares / shares.call("reduce_sum", axes=[0], keep_dims=True)).value
