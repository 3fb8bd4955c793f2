"""conv and conv_transpose: strided views, one per kernel position, summed by matrix products."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.kernels.normalization import per_channel
from onnxport.runtimes.mlprogram.kernels.registry import kernel
from onnxport.runtimes.mlprogram.kernels.windows import Span, integers, pad_windows, spans

# Elements of one matrix product's columns: more would exceed the caches or the memory.
_COLUMNS = 2**25
# Elements of a depthwise convolution's pieces: as many as a core's cache holds.
_PIECE = 2**16
# Multiplications up to which OpenBLAS keeps a matrix product on one thread (interface/gemm.c). Threads that wait for a
# busy core take longer than small products: twice to thirty times as long on two cores that others use.
_ONE_THREAD = 2**18
# Elements of a kernel position, [outputs, inputs], whose products then still have enough columns.
_SMALL_KERNEL, _FEW_INPUTS = 2**10, 8


@kernel("conv")
def conv(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    strides: Array | None = None,
    pad_type: str = "valid",
    pad: Array | None = None,
    dilations: Array | None = None,
    groups: Array | None = None,
) -> Array:
    rank = x.ndim - 2
    steps, gaps = integers(strides, rank, 1), integers(dilations, rank, 1)
    over = spans(x.shape[2:], weight.shape[2:], steps, gaps, pad_type, integers(pad, 2 * rank, 0))
    x = pad_windows(np.asarray(x, np.float32), over, 0)
    weight, group = np.asarray(weight, np.float32), 1 if groups is None else int(groups)
    if group == x.shape[1] > 1:
        y = _depthwise(x, weight, over)
    elif group == 1 and _has_small_kernels(weight) and all(span.stride == 1 for span in over):
        y = _by_positions(x, weight, over)
    else:
        y = _grouped(x, weight, over, group)
    return _add_bias(y, bias)


def _has_small_kernels(weight: Array) -> bool:
    outputs, inputs = weight.shape[:2]
    return bool(weight[0, 0].size > 1 and inputs >= _FEW_INPUTS and outputs * inputs <= _SMALL_KERNEL)


def _by_positions(x: Array, weight: Array, over: Sequence[Span]) -> Array:
    """Multiply the input by each kernel position and add, in pieces; steps are 1.

    A position meets the input's places in their order, from its own on. The places between two rows of the result,
    where windows reach into the next row, are computed too and left out.
    """
    batch, channels = x.shape[:2]
    size, rows = [span.size for span in over], x.shape[3:]
    kernels = np.ascontiguousarray(np.moveaxis(weight.reshape(*weight.shape[:2], -1), 2, 0))
    steps = [int(np.prod(rows[axis:])) for axis in range(len(over))]
    starts = [
        sum(at * span.dilation * step for at, span, step in zip(position, over, steps, strict=True))
        for position in _positions(over)
    ]
    flat = x.reshape(batch, channels, -1)
    y = np.empty((batch, len(weight), size[0] * steps[0]), np.float32)
    count = min(y.shape[2], flat.shape[2] - starts[-1])
    piece = _ONE_THREAD // kernels[0].size
    buffer = np.empty((len(weight), piece), np.float32)
    for image, first in itertools.product(range(batch), range(0, count, piece)):
        last = min(first + piece, count)
        target, product = y[image, :, first:last], buffer[:, : last - first]
        for index, start in enumerate(starts):
            np.matmul(kernels[index], flat[image, :, first + start : last + start], out=product)
            if index:
                target += product
            else:
                target[...] = product
    y = y.reshape(batch, len(weight), size[0], *rows)
    return np.ascontiguousarray(y[(slice(None), slice(None), slice(None), *map(slice, size[1:]))])


def _grouped(x: Array, weight: Array, over: Sequence[Span], groups: int) -> Array:
    """Multiply each group's kernels by the columns of the input that they cover."""
    batch, channels = x.shape[:2]
    size = [span.size for span in over]
    kernels = weight.reshape(groups, weight.shape[0] // groups, -1)
    y = np.empty((batch, groups, kernels.shape[1], *size), np.float32)
    positions = list(_positions(over))
    row = channels * len(positions) * int(np.prod(size[1:]))
    step = max(1, _COLUMNS // max(row, 1))
    for image, start in itertools.product(range(batch), range(0, size[0], step)):
        stop = min(start + step, size[0])
        part = [stop - start, *size[1:]]
        if len(positions) == 1 and all(span.stride == 1 for span in over):
            columns = x[image][:, start:stop]
        else:
            columns = np.empty((channels, len(positions), *part), np.float32)
            for index, position in enumerate(positions):
                columns[:, index] = x[image][(slice(None), *_views(over, position))][:, start:stop]
        product = np.matmul(kernels, columns.reshape(groups, kernels.shape[2], -1))
        y[image, :, :, start:stop] = product.reshape(groups, -1, *part)
    return y.reshape(batch, weight.shape[0], *size)


def _depthwise(x: Array, weight: Array, over: Sequence[Span]) -> Array:
    """Multiply and add view by view; every channel has `weight.shape[0] / channels` kernels."""
    batch, channels = x.shape[:2]
    size = [span.size for span in over]
    kernels = weight.reshape(channels, -1, *weight.shape[2:])
    y = np.empty((batch, *kernels.shape[:2], *size), np.float32)
    step = max(1, _PIECE // max(1, kernels.shape[1] * int(np.prod(size))))
    for image, start in itertools.product(range(batch), range(0, channels, step)):
        part = slice(start, start + step)
        target = y[image, part]
        product = np.empty_like(target)
        for index, position in enumerate(_positions(over)):
            view = x[image, part][(slice(None), *_views(over, position))][:, None]
            where: tuple[Any, ...] = (part, slice(None), *position)
            factors = kernels[where]
            factor = factors.reshape(factors.shape + (1,) * (target.ndim - factors.ndim))
            np.multiply(view, factor, out=product if index else target)
            if index:
                target += product
    return y.reshape(batch, weight.shape[0], *size)


@kernel("conv_transpose")
def conv_transpose(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    pad: Array | None = None,
    output_shape: Array | None = None,
    pad_type: str = "valid",
    strides: Array | None = None,
    dilations: Array | None = None,
    groups: Array | None = None,
) -> Array:
    rank = x.ndim - 2
    steps, gaps = integers(strides, rank, 1), integers(dilations, rank, 1)
    stretch = [Span(0, 0, *each) for each in zip(x.shape[2:], weight.shape[2:], steps, gaps, strict=True)]
    full = _overlap_add(np.asarray(x, np.float32), np.asarray(weight, np.float32), stretch, groups)
    wanted = None if output_shape is None else [int(each) for each in output_shape[2:]]
    return _add_bias(_crop(full, stretch, pad_type, integers(pad, 2 * rank, 0), wanted), bias)


def _overlap_add(x: Array, weight: Array, over: Sequence[Span], groups: Array | None) -> Array:
    """Multiply every element by the kernel and add where the kernels overlap, without cropping."""
    batch, channels = x.shape[:2]
    group = 1 if groups is None else int(groups)
    kernels = weight.reshape(group, channels // group, -1).swapaxes(1, 2)
    products = np.matmul(kernels, x.reshape(batch, group, channels // group, -1))
    products = products.reshape(batch, weight.shape[1] * group, -1, *x.shape[2:])
    y = np.zeros((*products.shape[:2], *(span.reach for span in over)), np.float32)
    for index, position in enumerate(_positions(over)):
        where: tuple[Any, ...] = (..., *_views(over, position))
        y[where] += products[:, :, index]
    return y


def _crop(
    y: Array, over: Sequence[Span], pad_type: str, pad: Sequence[int], wanted: Sequence[int] | None
) -> Array:
    """Remove the padding; pad with zeros where the output shape is larger than the products.

    `same` is the transpose of a `same` convolution whose input had the size of this output.
    """
    for i, span in enumerate(over):
        axis = 2 + i
        if pad_type == "same" or pad_type == "same_lower":
            size = wanted[i] if wanted else span.size * span.stride
            total = max(0, span.reach - size)
            before = total // 2 if pad_type == "same" else total - total // 2
        else:
            before, after = (pad[2 * i], pad[2 * i + 1]) if pad_type == "custom" else (0, 0)
            size = wanted[i] if wanted else span.reach - before - after
        lack = max(0, before + size - span.reach)
        if lack:
            y = np.pad(y, [(0, lack if each == axis else 0) for each in range(y.ndim)])
        y = y[(slice(None),) * axis + (slice(before, before + size),)]
    return y


@kernel("conv_quantized")
def conv_quantized(
    x: Array,
    weight: Array,
    quantization_type: str,
    quant_scale: Array,
    quant_bias: Array,
    nbits: Array | None = None,
    **rest: Any,
) -> Array:
    """Convolve with W_quantized * scale + bias, per tensor or per output channel."""
    scale, offset = (np.asarray(each, np.float32) for each in (quant_scale, quant_bias))
    shape = (-1,) + (1,) * (weight.ndim - 1)
    dequantized = weight.astype(np.float32) * scale.reshape(shape) + offset.reshape(shape)
    return np.asarray(conv(x, dequantized, **rest))


def _positions(over: Sequence[Span]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*(range(span.kernel) for span in over))


def _views(over: Sequence[Span], position: Sequence[int]) -> tuple[slice, ...]:
    return tuple(span.at(each) for span, each in zip(over, position, strict=True))


def _add_bias(y: Array, bias: Array | None) -> Array:
    return y if bias is None else np.asarray(y + per_channel(np.asarray(bias, np.float32), y))
