"""What a window sees of each spatial dimension: padding by its four names, and the size of the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnxport.core.arrays import Array


@dataclass(frozen=True)
class Span:
    """One spatial dimension under a sliding window.

    Attributes:
        before: padding in front; `after` behind it.
        size: of the result.
    """

    before: int
    after: int
    size: int
    kernel: int
    stride: int
    dilation: int

    def at(self, position: int) -> slice:
        """What the kernel's element `position` meets in the padded dimension, window by window."""
        start = position * self.dilation
        return slice(start, start + (self.size - 1) * self.stride + 1, self.stride)

    @property
    def reach(self) -> int:
        """How much of the padded dimension the windows need, which with ceil_mode can be more than there is."""
        return (self.size - 1) * self.stride + (self.kernel - 1) * self.dilation + 1


def integers(given: Array | None, count: int, default: int) -> list[int]:
    """A parameter with a number per dimension, which may be left out."""
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
    """The windows over spatial dimensions of `sizes`.

    `same` pads so that the result has ceil(size / stride) elements, an odd element behind, `same_lower` in front. (The
    formula for it in conv's documentation leaves the stride out and contradicts that sentence; coremltools' own shape
    inference, and TensorFlow's models, which its converter maps to `same` one to one, are as here.)
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
                count -= 1  # the last window would begin behind the input
        found.append(Span(before, after, count, k, stride, dilation))
    return found


def padded(x: Array, over: Sequence[Span], fill: float) -> Array:
    """`x` with its spatial dimensions padded, as far as the windows reach."""
    width = [(0, 0), (0, 0)]
    for size, span in zip(x.shape[2:], over, strict=True):
        width.append((span.before, max(span.after, span.reach - size - span.before)))
    return np.pad(x, width, constant_values=fill) if any(map(any, width)) else x
