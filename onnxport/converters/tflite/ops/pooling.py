"""Pooling over spatial windows and over whole feature maps."""

from __future__ import annotations

from functools import partial, reduce
from math import prod

import numpy as np

from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.kernels import BROADCAST_RANK
from onnxport.converters.tflite.layout import product
from onnxport.converters.tflite.ops.reduction import reduce_axes
from onnxport.converters.tflite.ops.windows import (
    from_images,
    images,
    output_sizes,
    pad_input,
    tflite_padding,
)
from onnxport.converters.tflite.registry import REGISTRY, lower
from onnxport.converters.tflite.tensors import Bounds, Tensor
from onnxport.converters.windows import Pool, Window, check_axes, read_pool
from onnxport.optimizers.node_marks import REASON


@lower("MaxPool")
def max_pool(node: TflNode, tfl: TflBuilder) -> None:
    """Maximum over a window; padding never wins (ONNX MaxPool-22)."""
    node.ignore("storage_order")  # concerns the indices output only
    if node.wants_output(1):
        node.unsupported(node.node.metadata_props.get(REASON, "has its indices output used"))
    pool = _read_pool(node)
    x = tfl.float32(node.x)  # also holds all int8 and uint8, for which TFLite needs scales
    tensor, window, padding = images(tfl, x), pool.window, tflite_padding(pool.window)
    if padding is None or not _is_native(pool.window):
        tensor, window, padding = pad_input(tfl, tensor, window, -np.inf), _padded_window(node, pool), "VALID"
    if _is_native(pool.window):
        result = _slide(tfl, "max_pool_2d", tensor, window, padding)
    else:
        result = _combine_shifted(tfl, "maximum", tensor, window)
    node.emit(tfl.convert(from_images(tfl, result, x.rank), node.x.dtype))


@lower("AveragePool")
def average_pool(node: TflNode, tfl: TflBuilder) -> None:
    """Mean over a window (ONNX AveragePool-22); with count_include_pad, padding counts as elements.

    TFLite divides by the elements inside the input for SAME and by the whole window for VALID. Where ONNX
    divides by something else, the sum over the window is divided by the number of elements that count.
    """
    counts_pads = bool(node.attribute("count_include_pad", 0))
    pool, x = _read_pool(node), tfl.float32(node.x)
    tensor, window, padding = images(tfl, x), pool.window, tflite_padding(pool.window)
    same = padding == "SAME" and not counts_pads and pool.declared == window.after
    if _is_native(pool.window) and (padding == "VALID" or same):
        result = _slide(tfl, "average_pool_2d", tensor, window, padding or "VALID")
    else:
        result = _mean(tfl, pad_input(tfl, tensor, window), _padded_window(node, pool))
        result = _rescale_mean(tfl, result, tensor, pool, counts_pads)
    node.emit(tfl.convert(from_images(tfl, result, x.rank), node.x.dtype))


@lower("LpPool")
def lp_pool(node: TflNode, tfl: TflBuilder) -> None:
    """The p-norm over a window (ONNX LpPool-22): the root of the window's area times the mean of |x|^p."""
    p, pool, x = node.attribute("p", 2), _read_pool(node), tfl.float32(node.x)
    tensor = images(tfl, x)
    powers = _power(tfl, tfl.op("abs", [tensor], tfl.shape_of(tensor)), p)
    mean = _mean(tfl, pad_input(tfl, powers, pool.window), _padded_window(node, pool))
    area = tfl.constant(prod(pool.window.kernel), np.float32)
    total = tfl.op("mul", [mean, area], tfl.shape_of(mean))
    node.emit(tfl.convert(from_images(tfl, _power(tfl, total, 1 / p), x.rank), node.x.dtype))


def _power(tfl: TflBuilder, tensor: Tensor, exponent: float) -> Tensor:
    if exponent == 1:
        return tensor
    shape = tfl.shape_of(tensor)
    if exponent == 2:
        return tfl.op("mul", [tensor, tensor], shape)
    if exponent == 0.5:
        return tfl.op("sqrt", [tensor], shape)
    if len(shape) > BROADCAST_RANK["pow"]:
        flat = tfl.op("reshape", [tensor, tfl.int32([-1])], [product(shape)])
        actual = tfl.sizes(tensor)
        return tfl.op("reshape", [_power(tfl, flat, exponent), actual], shape)
    return tfl.op("pow", [tensor, tfl.constant(exponent, np.float32)], shape)


# ---- windows


def _read_pool(node: TflNode) -> Pool:
    """Return the node's window, over one axis as one over two."""
    x = node.x
    check_axes(node, "TFLite pools")
    pool = read_pool(node, x.shape[2:])
    return Pool(pool.window.with_unit_axis(), (0, *pool.declared)) if x.rank == 3 else pool


def _is_native(window: Window) -> bool:
    """Return whether TFLite's pooling ops can slide it: two axes, no dilation."""
    return len(window.kernel) == 2 and all(d == 1 for d in window.dilations)


def _padded_window(node: TflNode, pool: Pool) -> Window:
    if pool.window.same and None in pool.window.input and any(s != 1 for s in pool.window.strides):
        node.unsupported("has auto_pad with a stride over an open size; fix the size with --shape NAME=...")
    return pool.window.padded()


# ---- sliding


def _slide(tfl: TflBuilder, name: str, tensor: Tensor, window: Window, padding: str) -> Tensor:
    batch, *_, channels = tfl.shape_of(tensor)
    strides = {"stride_h": window.strides[0], "stride_w": window.strides[1]}
    kernel = {"filter_height": window.kernel[0], "filter_width": window.kernel[1]}
    shape = (batch, *output_sizes(window, padding), channels)
    return tfl.op(name, [tensor], shape, padding=padding, **strides, **kernel)


def _mean(tfl: TflBuilder, tensor: Tensor, window: Window) -> Tensor:
    """Return the mean over whole windows of a padded tensor."""
    if _is_native(window):
        return _slide(tfl, "average_pool_2d", tensor, window, "VALID")
    total = _combine_shifted(tfl, "add", tensor, window)
    share = tfl.constant(1 / prod(window.kernel), np.float32)
    return tfl.op("mul", [total, share], tfl.shape_of(total))


def _combine_shifted(tfl: TflBuilder, name: str, tensor: Tensor, window: Window) -> Tensor:
    """Return each window's maximum or sum: `tfl.<name>` of shifted, strided slices, one axis after another."""
    for axis, count in enumerate(window.output, start=1):
        stride, dilation = window.strides[axis - 1], window.dilations[axis - 1]
        shifted = [
            _strided_elements(tfl, tensor, axis, offset * dilation, stride, count, window.extent[axis - 1])
            for offset in range(window.kernel[axis - 1])
        ]
        tensor = reduce(lambda a, b: tfl.op(name, [a, b], tfl.shape_of(a)), shifted)
    return tensor


def _strided_elements(
    tfl: TflBuilder, tensor: Tensor, axis: int, start: int, stride: int, count: int | None, extent: int
) -> Tensor:
    """Return the element at `start` in each of `count` windows along an axis."""
    shape = list(tfl.shape_of(tensor))
    # Of an open number of windows, the last one's end is counted from the end of the axis.
    end = start + (count - 1) * stride + 1 if count is not None else (start + 1 - extent or None)
    bounds: list[Bounds] = [(0, None, 1)] * len(shape)
    bounds[axis], shape[axis] = (start, end, stride), count
    return tfl.strided_slice(tensor, bounds, tuple(shape))


# ---- counting


def _rescale_mean(tfl: TflBuilder, mean: Tensor, tensor: Tensor, pool: Pool, counts_pads: bool) -> Tensor:
    """Turn means over whole windows into means over the elements that count."""
    window = pool.window
    if counts_pads and pool.declared == window.after:
        return mean
    if None not in window.input:
        area = float(prod(window.kernel))
        factor = tfl.constant((area / pool.counted(counts_pads)).astype(np.float32)[None, ..., None])
        return tfl.op("mul", [mean, factor], tfl.shape_of(mean))
    # The share of each window that counts is the pooled image of a tensor of ones.
    sizes = tfl.shape_of(tensor)[1:-1]
    one = tfl.constant(1, np.float32)
    spatial = tfl.int32([0, *(1 for _ in sizes), 0])
    shape = tfl.op("mul", [tfl.sizes(tensor), spatial], [len(sizes) + 2])
    shape = tfl.op("maximum", [shape, tfl.int32(1)], [len(sizes) + 2])
    ones = tfl.op("broadcast_to", [one, shape], (1, *sizes, 1))
    if counts_pads:
        added = tuple(a - d for a, d in zip(window.after, pool.declared, strict=True))
        ones = tfl.pad(ones, (0, *window.before, 0), (0, *pool.declared, 0), 1.0)
        ones = tfl.pad(ones, (0, *(0 for _ in added), 0), (0, *added, 0))
    else:
        ones = pad_input(tfl, ones, window)
    share = _mean(tfl, ones, window.padded())
    return tfl.op("div", [mean, share], tfl.shape_of(mean))


# ---- whole feature maps


def _lower_global(name: str, node: TflNode, tfl: TflBuilder) -> None:
    node.emit(reduce_axes(tfl, name, node.x, range(2, node.x.rank), keep=True))


_GLOBAL = {"GlobalAveragePool": "mean", "GlobalMaxPool": "reduce_max"}
REGISTRY.table({op: partial(_lower_global, name) for op, name in _GLOBAL.items()})


@lower("GlobalLpPool")
def global_lp_pool(node: TflNode, tfl: TflBuilder) -> None:
    """The p-norm over all spatial axes (ONNX GlobalLpPool-22)."""
    x, p = tfl.float32(node.x), node.attribute("p", 2)
    size = tfl.broadcast("maximum", x, tfl.broadcast("sub", 0, x))
    total = reduce_axes(tfl, "sum", tfl.broadcast("pow", size, p), range(2, x.rank), keep=True)
    node.emit(tfl.convert(tfl.broadcast("pow", total, 1 / p), node.x.dtype))
