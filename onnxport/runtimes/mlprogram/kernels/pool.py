"""Pools, one dimension at a time: a maximum of maxima or a sum of sums is that of the whole window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.kernels.registry import Call, Flag, Undefined, kernel
from onnxport.runtimes.mlprogram.kernels.windows import Span, integers, pad_windows, spans


@kernel("max_pool")
def max_pool(x: Array, call: Call, **window: Any) -> Array:
    over = _spans(x, **window)
    if call.strict:
        _counts(x, over, call, exclude_padding=True)
    return _reduce(pad_windows(x, over, -np.inf), over, np.maximum)


@kernel("avg_pool")
def avg_pool(x: Array, call: Call, exclude_padding_from_average: Flag = False, **window: Any) -> Array:
    """Return the mean of each window.

    Padding counts as zeros unless it is excluded. Elements behind the padding, which ceil_mode's last window may cover,
    never count ("same as PyTorch's ceil mode").
    """
    over = _spans(x, **window)
    counts = _counts(x, over, call, exclude_padding=bool(exclude_padding_from_average))
    return np.asarray(_reduce(pad_windows(x, over, 0), over, np.add) / counts)


@kernel("l2_pool")
def l2_pool(x: Array, **window: Any) -> Array:
    """Return the square root of each window's sum of squares."""
    over = _spans(x, **window)
    return np.asarray(np.sqrt(_reduce(pad_windows(np.square(x), over, 0), over, np.add)))


def _spans(
    x: Array,
    kernel_sizes: Array,
    strides: Array | None = None,
    pad_type: str = "valid",
    pad: Array | None = None,
    ceil_mode: Flag = False,
) -> list[Span]:
    rank = x.ndim - 2
    return spans(
        x.shape[2:],
        integers(kernel_sizes, rank, 1),
        integers(strides, rank, 1),
        [1] * rank,
        pad_type,
        integers(pad, 2 * rank, 0),
        ceil_mode=bool(ceil_mode),
    )


def _reduce(x: Array, over: Sequence[Span], join: Callable[..., Array]) -> Array:
    for axis, span in enumerate(over, start=2):
        lead = (slice(None),) * axis
        result = x[(*lead, span.at(0))].copy()
        for position in range(1, span.kernel):
            join(result, x[(*lead, span.at(position))], out=result)
        x = result
    return x


def _counts(x: Array, over: Sequence[Span], call: Call, *, exclude_padding: bool) -> Array:
    """Return the number of elements of each window, ready to broadcast over batch and channels."""
    counts = np.ones((1,) * x.ndim, np.float32)
    for axis, (size, span) in enumerate(zip(x.shape[2:], over, strict=True), start=2):
        starts = np.arange(span.size) * span.stride
        first, last = span.before, span.before + size
        if not exclude_padding:
            first, last = 0, last + span.after
        within = np.maximum(np.minimum(starts + span.kernel, last) - np.maximum(starts, first), 0)
        if call.strict and not within.all():
            raise Undefined(f"{call.operation.type} with a window entirely in the padding")
        shape = [-1 if each == axis else 1 for each in range(x.ndim)]
        counts = counts * within.astype(np.float32).reshape(shape)
    return counts
