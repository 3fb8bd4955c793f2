"""The arithmetic of sliding windows that convolution and pooling share: padding, output sizes, ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Literal

import numpy as np

from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.layout import channels_last
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value

Sizes = tuple[int | None, ...]


@dataclass(frozen=True)
class Window:
    """A window sliding over spatial axes, in ONNX's terms; every field has one entry per spatial axis.

    Attributes:
        input: the input's spatial sizes, None where open.
        kernel, strides, dilations: as the node has them.
        before, after: elements of padding.
        same: pads as TFLite's SAME does whatever the size (auto_pad SAME_UPPER); before and after hold then
            only where all sizes are known or all strides are 1.
    """

    input: Sizes
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    same: bool = False

    @property
    def extent(self) -> tuple[int, ...]:
        """The input elements that one window spans."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def output(self) -> Sizes:
        """Spatial sizes of the result, floor rounding."""
        return tuple(
            None if size is None else (size + b + a - extent) // stride + 1
            for size, b, a, extent, stride in zip(
                self.input, self.before, self.after, self.extent, self.strides, strict=True
            )
        )

    def tflite_padding(self) -> Literal["SAME", "VALID"] | None:
        """The TFLite padding scheme with these very amounts, or None if explicit padding is needed.

        TensorFlow's SAME pads so that the output is ceil(input / stride), the odd element at the end.
        """
        if self.same:
            return "SAME"
        if not any(self.before) and not any(self.after):
            return "VALID"
        for axis, size in enumerate(self.input):
            amounts = (self.before[axis], self.after[axis])
            if amounts != _same_padding(size, self.extent[axis], self.strides[axis]):
                return None
        return "SAME"

    def padded(self) -> Window:
        """The same window once the padding has been written into the input."""
        sizes = tuple(
            None if size is None else size + b + a
            for size, b, a in zip(self.input, self.before, self.after, strict=True)
        )
        none = (0,) * len(self.kernel)
        return replace(self, input=sizes, before=none, after=none, same=False)

    def with_unit_axis(self) -> Window:
        """A 1-D window as a 2-D one over height 1."""
        return Window(
            (1, *self.input),
            (1, *self.kernel),
            (1, *self.strides),
            (1, *self.dilations),
            (0, *self.before),
            (0, *self.after),
            self.same,
        )


def _same_padding(size: int | None, extent: int, stride: int) -> tuple[int, int] | None:
    if size is None:
        # With stride 1 the amounts do not depend on the size.
        total = extent - 1 if stride == 1 else None
    else:
        total = max((ceil(size / stride) - 1) * stride + extent - size, 0)
    return None if total is None else (total // 2, total - total // 2)


def window_of(node: TflNode, x: Value, kernel: Sequence[int]) -> Window:
    """The node's window over `x` with its strides, dilations, pads and auto_pad resolved."""
    spatial = len(kernel)
    none = (0,) * spatial
    strides = tuple(node.attribute("strides", (1,) * spatial))
    dilations = tuple(node.attribute("dilations", (1,) * spatial))
    auto_pad = node.attribute("auto_pad", "NOTSET")
    pads = tuple(node.attribute("pads", none * 2))
    sizes = tuple(x.shape[2:])
    window = Window(sizes, tuple(kernel), strides, dilations, pads[:spatial], pads[spatial:])
    if min(pads) < 0:
        node.unsupported("negative pads; use Slice")
    if auto_pad == "NOTSET":
        return window
    if auto_pad == "VALID":
        return replace(window, before=none, after=none)
    amounts = [_same_padding(*axis) for axis in zip(sizes, window.extent, strides, strict=True)]
    pairs = [pair or (0, 0) for pair in amounts]
    if auto_pad == "SAME_LOWER":
        if None in amounts:
            node.unsupported(
                "auto_pad SAME_LOWER with a stride over an open size; fix the size with --shape NAME=..."
            )
        pairs = [(after, before) for before, after in pairs]  # the odd element at the start
    before, after = tuple(b for b, _ in pairs), tuple(a for _, a in pairs)
    return replace(window, before=before, after=after, same=auto_pad == "SAME_UPPER")


def pad_input(tfl: TflBuilder, tensor: Tensor, window: Window, fill: float | None = None) -> Tensor:
    """Writes the window's padding into a channels-last tensor [N, spatial..., C]."""
    return tfl.pad(tensor, (0, *window.before, 0), (0, *window.after, 0), fill)


def images(tfl: TflBuilder, x: Value) -> Tensor:
    """`x` as TFLite's 2-D (or 3-D) image ops take it: [N, H, W, C]; [N, C, L] becomes [N, 1, L, C]."""
    tensor = tfl.tensor(x, channels_last(x.rank))
    return tfl.with_unit_axis(tensor, 1) if x.rank == 3 else tensor


def from_images(tfl: TflBuilder, tensor: Tensor, rank: int) -> Value:
    """The ONNX value of `rank` behind an image op's result."""
    if rank == 3:
        tensor = tfl.without_unit_axis(tensor, 1)
    return tfl.computed(tensor, channels_last(rank))


def spatial_sizes(tfl: TflBuilder, tensor: Tensor) -> Tensor:
    """The sizes of a channels-last tensor's spatial axes at run time, int32."""
    rank = len(tfl.shape_of(tensor))
    return tfl.slice(tfl.op("shape", [tensor], [rank], np.int32), [1], [rank - 2])
