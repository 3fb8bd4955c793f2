"""Pooling over spatial windows and over whole feature maps."""

from __future__ import annotations

from functools import partial, reduce
from math import prod

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder, MilNode
from onnxport.converters.coreml.ops.padding import interleave_pads, pad_spatial, window_pads
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.shapes.dims import as_shape, size_of
from onnxport.converters.coreml.values import Value
from onnxport.converters.windows import Pool, Window, check_axes, read_pool
from onnxport.optimizers.node_marks import REASON


@lower("MaxPool")
def max_pool(node: MilNode, mil: MilBuilder) -> None:
    """Maximum over a window; padding never wins (ONNX MaxPool-22)."""
    node.ignore("storage_order")  # concerns the indices output only
    if node.wants_output(1):
        node.unsupported(node.node.metadata_props.get(REASON, "has its indices output used"))
    x, window = node.x, _pool(node, mil).window
    if x.is_integer:
        if x.dtype.itemsize > 1:
            node.unsupported(f"pools {x.dtype} elements, which Core ML's floats do not hold")
        mil.compute = "fp32"
        x = Value(x.shape, np.dtype(np.float32), copies={"fp32": mil.var(x, "fp32")})
    if _is_native(window):
        sizes = {"kernel_sizes": list(window.kernel), "strides": list(window.strides)}
        result = mil.max_pool(x=x, **sizes, **window_pads(window))
    else:
        result = _combine_windows(node, mil, "maximum", x, window, float("-inf"))
    node.emit(mil.cast(x=result, dtype="int32") if node.x.is_integer else result)


@lower("AveragePool")
def average_pool(node: MilNode, mil: MilBuilder) -> None:
    """Mean over a window (ONNX AveragePool-22); with count_include_pad, padding counts as elements."""
    counts_pads = bool(node.attribute("count_include_pad", 0))
    pool = _pool(node, mil)
    x, window, declared = node.x, pool.window, pool.declared
    if not _is_native(window):
        node.emit(_dilated_mean(node, mil, x, pool, counts_pads))
        return
    if counts_pads and declared != window.after:
        # Padding of ceil_mode never counts: write the declared padding as elements.
        written = tuple(min(a, b) for a, b in zip(declared, window.after, strict=True))
        x = pad_spatial(mil, x, window.before, written)
        window = window.with_padding_written(written)
        counts_pads = False
    excludes = not counts_pads and window_pads(window)["pad_type"] != "valid"
    node.emit(_average(mil, x, window, excludes_pads=excludes))


def _average(mil: MilBuilder, x: Value, window: Window, *, excludes_pads: bool) -> Value:
    return mil.avg_pool(
        x=x,
        kernel_sizes=list(window.kernel),
        strides=list(window.strides),
        exclude_padding_from_average=excludes_pads,
        **window_pads(window),
    )


@lower("LpPool")
def lp_pool(node: MilNode, mil: MilBuilder) -> None:
    """The p-norm over a window (ONNX LpPool-22), in float32, whose range its powers need."""
    p, window = node.attribute("p", 2), _pool(node, mil).window
    mil.compute = "fp32"
    powers = _power(mil, mil.abs(x=node.x), p)
    if _is_native(window):
        mean = _average(mil, powers, window, excludes_pads=False)
        total = mil.mul(x=mean, y=float(prod(window.kernel)))
    else:
        total = _combine_windows(node, mil, "add", powers, window)
    node.emit(_power(mil, total, 1 / p))


def _power(mil: MilBuilder, x: Value, exponent: float) -> Value:
    if exponent == 1:
        return x
    if exponent == 2:
        return mil.mul(x=x, y=x)
    return mil.sqrt(x=x) if exponent == 0.5 else mil.pow(x=x, y=float(exponent))


def _pool(node: MilNode, mil: MilBuilder) -> Pool:
    check_axes(node, "Core ML pools")
    return read_pool(node, node.x.shape[2:], has_same_lower=mil.at_least("iOS16"))


def _is_native(window: Window) -> bool:
    return all(d == 1 for d in window.dilations)


# ---- windows with holes, one axis after another


def _combine_windows(
    node: MilNode, mil: MilBuilder, op: str, x: Value, window: Window, fill: float = 0.0
) -> Value:
    """Return each window's "maximum" or sum ("add")."""
    if (window.same or window.same_lower) and None in window.input and any(s != 1 for s in window.strides):
        node.unsupported("has auto_pad with a stride over an open size; fix the size with --shape NAME=...")
    padded = pad_spatial(mil, x, window.before, window.after, fill)
    return _combine_shifted(mil, op, padded, window.padded())


def _combine_shifted(mil: MilBuilder, op: str, x: Value, window: Window) -> Value:
    """Combine shifted, strided slices along each axis; the padding is written."""
    for axis, count in enumerate(window.output):
        slices = [
            _strided_elements(mil, x, axis + 2, offset, window.strides[axis], count, window.extent[axis])
            for offset in range(0, window.extent[axis], window.dilations[axis])
        ]
        x = reduce(lambda a, b: mil.emit(op, x=a, y=b), slices)
    return x


def _strided_elements(
    mil: MilBuilder, x: Value, axis: int, start: int, stride: int, count: int | None, extent: int
) -> Value:
    """Return the element at `start` in each of `count` windows along an axis."""
    begin, end, strides = [0] * x.rank, [0] * x.rank, [1] * x.rank
    masks = [True] * x.rank
    begin[axis], strides[axis] = start, stride
    # Of an open number of windows, the last one's end is counted from the end of the axis.
    end[axis] = start + (count - 1) * stride + 1 if count is not None else start + 1 - extent
    masks[axis] = end[axis] == 0
    begin_mask = [a != axis for a in range(x.rank)]
    return mil.slice_by_index(
        x=x, begin=begin, end=end, stride=strides, begin_mask=begin_mask, end_mask=masks
    )


def _dilated_mean(node: MilNode, mil: MilBuilder, x: Value, pool: Pool, counts_pads: bool) -> Value:
    """Return the mean over a window with holes."""
    window = pool.window
    total = _combine_windows(node, mil, "add", x, window)
    if counts_pads and pool.declared == window.after:
        return mil.mul(x=total, y=1 / prod(window.kernel))
    counted = (
        _element_counts(mil, x, pool, counts_pads)
        if None in window.input
        else pool.counted(counts_pads)[None, None].astype(np.float32)
    )
    return mil.real_div(x=total, y=counted)


def _element_counts(mil: MilBuilder, x: Value, pool: Pool, counts_pads: bool) -> Value:
    """Return the number of elements that count in each window: sums over an input of ones."""
    window = pool.window
    sizes = [size_of(mil, x, axis) for axis in range(2, x.rank)]
    ones = mil.fill(shape=as_shape(mil, [1, 1, *sizes]), value=1.0)
    before, after = window.before, window.after
    if counts_pads:
        written = tuple(min(a, b) for a, b in zip(pool.declared, after, strict=True))
        pads = interleave_pads((0, 0, *before), (0, 0, *written))
        ones = mil.pad(x=ones, pad=pads, mode="constant", constant_val=1.0)
        before, after = (0,) * len(before), tuple(a - b for a, b in zip(after, written, strict=True))
    return _combine_shifted(mil, "add", pad_spatial(mil, ones, before, after), window.padded())


# ---- whole feature maps


def _reduce_space(op: str, node: MilNode, mil: MilBuilder) -> None:
    node.emit(mil.emit(op, x=node.x, axes=_spatial(node), keep_dims=True))


lower("GlobalAveragePool")(partial(_reduce_space, "reduce_mean"))
lower("GlobalMaxPool")(partial(_reduce_space, "reduce_max"))


@lower("GlobalLpPool")
def global_lp_pool(node: MilNode, mil: MilBuilder) -> None:
    """The p-norm over all spatial axes (ONNX GlobalLpPool-22), in float32, whose range its powers need."""
    p = node.attribute("p", 2)
    mil.compute = "fp32"
    powers = _power(mil, mil.abs(x=node.x), p)
    node.emit(_power(mil, mil.reduce_sum(x=powers, axes=_spatial(node), keep_dims=True), 1 / p))


def _spatial(node: MilNode) -> list[int]:
    if node.x.rank < 3:
        node.unsupported("has an input without spatial axes")
    return list(range(2, node.x.rank))
