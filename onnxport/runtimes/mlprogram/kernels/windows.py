"""Sliding windows of conv and pools: padding by its four names, and the size of the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnxport.core.arrays import Array


@dataclass(frozen=True)
class Span:
    """One spatial dimension under a sliding window."""

    # before, after: padding.
    before: int
    after: int
    size: int  # size of the result
    kernel: int
    stride: int
    dilation: int

    def at(self, position: int) -> slice:
        """Return the elements of the padded dimension that the kernel's element `position` meets, one per window."""
        start = position * self.dilation
        return slice(start, start + (self.size - 1) * self.stride + 1, self.stride)

    @property
    def reach(self) -> int:
        """The size of the padded dimension that the windows need; with ceil_mode it may exceed the actual size."""
        return (self.size - 1) * self.stride + (self.kernel - 1) * self.dilation + 1


def integers(given: Array | None, count: int, default: int) -> list[int]:
    """Return a parameter of one number per dimension, or its default."""
    return [default] * count if given is None else [int(each) for each in np.ravel(given)]


def spans(
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pad_type: str,
    pad: Sequence[int],
    *,
    ceil_mode: bool = False,
) -> list[Span]:
    """Return the windows over spatial dimensions of `sizes`.

    `same` pads so that the result has ceil(size / stride) elements, with an odd element behind; `same_lower`, in front.
    (The formula in conv's documentation lacks the stride; coremltools' shape inference and TensorFlow compute as here.)
    """
    found = []
    for i, (size, k, stride, dilation) in enumerate(zip(sizes, kernel, strides, dilations, strict=True)):
        extent = (k - 1) * dilation + 1
        before, after = 0, 0
        if pad_type.startswith("same"):
            total = max(0, (-(-size // stride) - 1) * stride + extent - size)
            small, large = total // 2, total - total // 2
            before, after = (large, small) if pad_type == "same_lower" else (small, large)
        elif pad_type == "custom":
            before, after = pad[2 * i], pad[2 * i + 1]
        room = size + before + after - extent
        count = room // stride + 1
        if ceil_mode:
            count = -(-room // stride) + 1
            if (count - 1) * stride >= size + before and before + after > 0:
                count -= 1  # else the last window would begin behind the input
        found.append(Span(before, after, count, k, stride, dilation))
    return found


def pad_windows(x: Array, over: Sequence[Span], fill: float) -> Array:
    """Pad the spatial dimensions of `x` as far as the windows reach."""
    width = [(0, 0), (0, 0)]
    for size, span in zip(x.shape[2:], over, strict=True):
        width.append((span.before, max(span.after, span.reach - size - span.before)))
    return np.pad(x, width, constant_values=fill) if any(map(any, width)) else x
