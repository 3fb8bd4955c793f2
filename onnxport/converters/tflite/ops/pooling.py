"""Pooling over spatial windows and over whole feature maps."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np

from onnxport.converters.tflite.builder import Array, Tensor, TflBuilder, TflNode
from onnxport.converters.tflite.ops.reduction import reduce_axes
from onnxport.converters.tflite.ops.windows import Window, from_images, images, pad_input, window_of
from onnxport.converters.tflite.registry import lower


@lower("MaxPool")
def max_pool(node: TflNode, tfl: TflBuilder) -> None:
    """Maximum over a window; padding never wins (ONNX MaxPool-12)."""
    node.ignore("storage_order")  # concerns the indices output only
    if node.wants_output(1):
        node.unsupported("its indices output is used; TFLite's MAX_POOL_2D has none")
    window = _pool_window(node)
    tensor = images(tfl, node.x)
    padding = window.tflite_padding()
    if padding is None:
        lowest = float(np.finfo(np.float32).min)
        tensor, window, padding = pad_input(tfl, tensor, window, lowest), window.padded(), "VALID"
    _emit_pool(node, tfl, "max_pool_2d", tensor, window, padding)


@lower("AveragePool")
def average_pool(node: TflNode, tfl: TflBuilder) -> None:
    """Mean over a window (ONNX AveragePool-19); count_include_pad says whether padding counts as elements.

    TFLite divides by the elements inside the input for SAME and by the whole window for VALID. What ONNX
    divides by instead is multiplied in, as a constant per output position.
    """
    counts_pads = bool(node.attribute("count_include_pad", 0))
    window = _pool_window(node)
    tensor = images(tfl, node.x)
    padding = window.tflite_padding()
    declared = _declared_after(node, window)
    if padding == "VALID" or (padding == "SAME" and not counts_pads and declared == window.after):
        return _emit_pool(node, tfl, "average_pool_2d", tensor, window, padding)
    correction = _correction(node, window, declared, counts_pads)
    padded = pad_input(tfl, tensor, window)
    return _emit_pool(node, tfl, "average_pool_2d", padded, window.padded(), "VALID", correction)


def _pool_window(node: TflNode) -> Window:
    x = node.x
    kernel = tuple(node.attribute("kernel_shape"))
    if x.rank not in (3, 4):
        node.unsupported("pooling over 3-D volumes; TFLite pools images only")
    window = window_of(node, x, kernel)
    if any(d != 1 for d in window.dilations):
        node.unsupported("dilations; TFLite's pooling has none")
    if node.attribute("ceil_mode", 0) and node.attribute("auto_pad", "NOTSET") == "NOTSET":
        window = _with_ceil(node, window)
    return window.with_unit_axis() if x.rank == 3 else window


def _with_ceil(node: TflNode, window: Window) -> Window:
    """Enlarges the end padding so that floor rounding gives what ceil_mode asks for.

    A last window that would start in the end padding is dropped, as ONNX Runtime and PyTorch do.
    """
    if None in window.input:
        node.unsupported("ceil_mode over an open size; fix the size with --shape NAME=...")
    after = []
    for axis, size in enumerate(window.input):
        assert size is not None
        before, extent, stride = window.before[axis], window.extent[axis], window.strides[axis]
        count = ceil((size + before + window.after[axis] - extent) / stride) + 1
        if (count - 1) * stride >= size + before:
            count -= 1
        # The last window's end, which may also lie before the declared one.
        after.append((count - 1) * stride + extent - size - before)
    return replace(window, after=tuple(max(a, 0) for a in after))


def _declared_after(node: TflNode, window: Window) -> tuple[int, ...]:
    """The end padding as the node declares it: what ceil_mode adds beyond never counts as elements."""
    if node.attribute("auto_pad", "NOTSET") != "NOTSET" or not node.attribute("ceil_mode", 0):
        return window.after
    spatial = node.x.rank - 2
    after = tuple(node.attribute("pads", (0,) * 2 * spatial))[spatial:]
    return (0, *after) if spatial == 1 else after


def _correction(node: TflNode, window: Window, declared: tuple[int, ...], counts_pads: bool) -> Array | None:
    """Window area over counted elements, per output position; None where it is 1 throughout."""
    if counts_pads and declared == window.after:
        return None
    if None in window.input:
        node.unsupported("padding that must not be counted, over an open size; fix the size with --shape NAME=...")
    counted = []
    for axis, count in enumerate(window.output):
        size, before, kernel = window.input[axis], window.before[axis], window.kernel[axis]
        assert size is not None
        assert count is not None
        low, high = (-before, size + declared[axis]) if counts_pads else (0, size)
        starts = np.arange(count) * window.strides[axis] - before
        counted.append(np.minimum(starts + kernel, high) - np.maximum(starts, low))
    area = float(np.prod(window.kernel))
    return (area / np.outer(*counted)).astype(np.float32)[None, :, :, None]


def _emit_pool(
    node: TflNode,
    tfl: TflBuilder,
    name: str,
    tensor: Tensor,
    window: Window,
    padding: str,
    correction: Array | None = None,
) -> None:
    x = node.x
    batch, *_, channels = tfl.shape_of(tensor)
    shape = (batch, *window.output, channels)
    result = tfl.op(
        name,
        [tensor],
        shape,
        x.dtype,
        padding=padding,
        stride_h=window.strides[0],
        stride_w=window.strides[1],
        filter_height=window.kernel[0],
        filter_width=window.kernel[1],
        fused_activation_function="NONE",
    )
    if correction is not None:
        result = tfl.binary("mul", result, tfl.constant(correction), shape)
    node.emit(from_images(tfl, result, x.rank, x))


@lower("GlobalAveragePool")
def global_average_pool(node: TflNode, tfl: TflBuilder) -> None:
    node.emit(reduce_axes(tfl, "mean", node.x, range(2, node.x.rank), keep=True))


@lower("GlobalMaxPool")
def global_max_pool(node: TflNode, tfl: TflBuilder) -> None:
    node.emit(reduce_axes(tfl, "reduce_max", node.x, range(2, node.x.rank), keep=True))
