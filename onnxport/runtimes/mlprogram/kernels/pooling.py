"""Pools: dimension by dimension, because a maximum of maxima and a sum of sums are those of the whole window."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.kernels.windows import Span, integers, padded, spans
from onnxport.runtimes.mlprogram.registry import Call, Undefined, kernel


@kernel("max_pool")
def max_pool(
    x: Array,
    kernel_sizes: Array,
    call: Call,
    strides: Array | None = None,
    pad_type: str = "valid",
    pad: Array | None = None,
    ceil_mode: Array | None = None,
) -> Array:
    over = _spans(x, kernel_sizes, strides, pad_type, pad, ceil_mode)
    if call.strict:
        _counts(x, over, call, exclude_padding=True)
    return _pooled(padded(x, over, -np.inf), over, np.maximum)


@kernel("avg_pool")
def avg_pool(
    x: Array,
    kernel_sizes: Array,
    call: Call,
    strides: Array | None = None,
    pad_type: str = "valid",
    pad: Array | None = None,
    exclude_padding_from_average: Array | None = None,
    ceil_mode: Array | None = None,
) -> Array:
    """The mean over each window.

    Padding counts as zeros unless it is excluded; what a last window of ceil_mode has behind the padding never counts
    ("same as PyTorch's ceil mode").
    """
    over = _spans(x, kernel_sizes, strides, pad_type, pad, ceil_mode)
    excluded = exclude_padding_from_average is not None and bool(exclude_padding_from_average)
    counts = _counts(x, over, call, exclude_padding=excluded)
    return np.asarray(_pooled(padded(x, over, 0), over, np.add) / counts)


@kernel("l2_pool")
def l2_pool(
    x: Array,
    kernel_sizes: Array,
    strides: Array | None = None,
    pad_type: str = "valid",
    pad: Array | None = None,
    ceil_mode: Array | None = None,
) -> Array:
    """The square root of the sum of squares in each window."""
    over = _spans(x, kernel_sizes, strides, pad_type, pad, ceil_mode)
    return np.asarray(np.sqrt(_pooled(padded(np.square(x), over, 0), over, np.add)))


def _spans(
    x: Array,
    kernel_sizes: Array,
    strides: Array | None,
    pad_type: str,
    pad: Array | None,
    ceil_mode: Array | None,
) -> list[Span]:
    rank = x.ndim - 2
    return spans(
        x.shape[2:],
        integers(kernel_sizes, rank, 1),
        integers(strides, rank, 1),
        [1] * rank,
        pad_type,
        integers(pad, 2 * rank, 0),
        ceil_mode=ceil_mode is not None and bool(ceil_mode),
    )


def _pooled(x: Array, over: Sequence[Span], join: Callable[..., Array]) -> Array:
    for axis, span in enumerate(over, start=2):
        lead = (slice(None),) * axis
        result = x[(*lead, span.at(0))].copy()
        for position in range(1, span.kernel):
            join(result, x[(*lead, span.at(position))], out=result)
        x = result
    return x


def _counts(x: Array, over: Sequence[Span], call: Call, *, exclude_padding: bool) -> Array:
    """How many elements each window has, to be broadcast over batch and channels."""
    counts = np.ones((1,) * x.ndim, np.float32)
    for axis, (size, span) in enumerate(zip(x.shape[2:], over, strict=True), start=2):
        starts = np.arange(span.size) * span.stride
        first, last = (
            (span.before, span.before + size) if exclude_padding else (0, span.before + size + span.after)
        )
        within = np.maximum(np.minimum(starts + span.kernel, last) - np.maximum(starts, first), 0)
        if call.strict and not within.all():
            raise Undefined(f"{call.operation.type} whose window lies in the padding altogether")
        counts = counts * within.astype(np.float32).reshape(
            [-1 if each == axis else 1 for each in range(x.ndim)]
        )
    return counts
