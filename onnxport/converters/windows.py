"""Sliding windows of convolution and pooling, whatever the target: padding and output sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import ceil
from typing import Any

import numpy as np

from onnxport.converters.lowering import NodeView
from onnxport.core.arrays import Array

Sizes = tuple[int | None, ...]


@dataclass(frozen=True)
class Window:
    """A window that slides over spatial axes; every field has one entry per axis.

    Attributes:
        input: the input's spatial sizes, None where open.
        kernel, strides, dilations: as the node has them.
        before, after: elements of padding.
        same: pads as TensorFlow's SAME does whatever the size (auto_pad SAME_UPPER); before and after hold then
            only where all sizes are known or all strides are 1.
        same_lower: the same with the odd element at the start (auto_pad SAME_LOWER).
    """

    input: Sizes
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    same: bool = False
    same_lower: bool = False

    @property
    def extent(self) -> tuple[int, ...]:
        """The input elements that one window spans."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def output(self) -> Sizes:
        """The spatial sizes of the result, rounded down."""
        return tuple(
            None if size is None else (size + b + a - extent) // stride + 1
            for size, b, a, extent, stride in zip(
                self.input, self.before, self.after, self.extent, self.strides, strict=True
            )
        )

    def is_tensorflows_same(self) -> bool:
        """Return whether it pads as TensorFlow: output ceil(input / stride), the odd element at the end."""
        return self.same or all(
            (self.before[axis], self.after[axis]) == same_padding(size, self.extent[axis], self.strides[axis])
            for axis, size in enumerate(self.input)
        )

    def padded(self) -> Window:
        """Return the window after its padding is written into the input."""
        return replace(self.with_padding_written(self.after), same=False, same_lower=False)

    def with_padding_written(self, after: Sequence[int]) -> Window:
        """Return the window after all padding before, and `after` of the padding behind, is written into the input."""
        sizes = tuple(
            None if size is None else size + b + a
            for size, b, a in zip(self.input, self.before, after, strict=True)
        )
        rest = tuple(whole - a for whole, a in zip(self.after, after, strict=True))
        return replace(self, input=sizes, before=(0,) * len(rest), after=rest)

    def with_unit_axis(self) -> Window:
        """Return a 1-D window as a 2-D one of height 1."""
        return Window(
            (1, *self.input),
            (1, *self.kernel),
            (1, *self.strides),
            (1, *self.dilations),
            (0, *self.before),
            (0, *self.after),
            self.same,
            self.same_lower,
        )


def same_padding(size: int | None, extent: int, stride: int) -> tuple[int, int] | None:
    if size is None:
        # With stride 1 the amounts do not depend on the size.
        total = extent - 1 if stride == 1 else None
    else:
        total = max((ceil(size / stride) - 1) * stride + extent - size, 0)
    return None if total is None else (total // 2, total - total // 2)


def read_window(
    node: NodeView[Any], sizes: Sizes, kernel: Sequence[int], *, has_same_lower: bool = False
) -> Window:
    """Return the node's window over spatial `sizes` with its strides, dilations, pads and auto_pad resolved.

    Args:
        has_same_lower: whether the target pads as SAME_LOWER whatever the size.
    """
    window, auto_pad = _declared_window(node, sizes, kernel)
    none = (0,) * len(kernel)
    if min(*window.before, *window.after) < 0:
        node.unsupported("negative pads; use Slice")
    if auto_pad == "NOTSET":
        return window
    if auto_pad == "VALID":
        return replace(window, before=none, after=none)
    amounts = [same_padding(*axis) for axis in zip(sizes, window.extent, window.strides, strict=True)]
    pairs = [pair or (0, 0) for pair in amounts]
    if auto_pad == "SAME_LOWER":
        if None in amounts and not has_same_lower:
            node.unsupported(
                "auto_pad SAME_LOWER with a stride over an open size; fix the size with --shape NAME=..."
            )
        pairs = [(after, before) for before, after in pairs]  # the odd element at the start
    before, after = tuple(b for b, _ in pairs), tuple(a for _, a in pairs)
    return replace(
        window, before=before, after=after, same=auto_pad == "SAME_UPPER", same_lower=auto_pad == "SAME_LOWER"
    )


def _declared_window(node: NodeView[Any], sizes: Sizes, kernel: Sequence[int]) -> tuple[Window, str]:
    """Return the node's window with its own pads, and auto_pad."""
    spatial = len(kernel)
    strides = tuple(node.attribute("strides", (1,) * spatial))
    dilations = tuple(node.attribute("dilations", (1,) * spatial))
    pads = tuple(node.attribute("pads", (0,) * 2 * spatial))
    window = Window(sizes, tuple(kernel), strides, dilations, pads[:spatial], pads[spatial:])
    return window, node.attribute("auto_pad", "NOTSET")


def check_axes(node: NodeView[Any], action: str) -> None:
    """Refuse an input without one to three spatial axes; `action` is "TFLite convolves"."""
    rank = node.x.rank
    if rank not in (3, 4, 5):
        node.unsupported(f"has an input of rank {rank}; {action} over one to three axes")


def known_kernel(node: NodeView[Any], weights: tuple[int | None, ...]) -> tuple[int, ...]:
    """Return the spatial sizes of a convolution's weights; refuses open ones."""
    node.attribute("kernel_shape", None)  # the weights decide
    if None in weights:
        node.unsupported("has weights (input 1) of an open size; fix it with --shape NAME=...")
    return tuple(size or 0 for size in weights[2:])


# ---- pooling


@dataclass(frozen=True)
class Pool:
    """A pooling window, padded at its end for ceil_mode.

    Attributes:
        window: with the padding of ceil_mode.
        declared: the node's own end padding; padding of ceil_mode never counts as elements.
    """

    window: Window
    declared: tuple[int, ...]

    def counted(self, counts_pads: bool) -> Array:
        """Return the number of elements that count in each window, [spatial...]; all sizes are known."""
        window, counted = self.window, []
        for axis, count in enumerate(window.output):
            size, before, dilation = window.input[axis] or 0, window.before[axis], window.dilations[axis]
            low, high = (-before, size + self.declared[axis]) if counts_pads else (0, size)
            starts = np.arange(count or 0) * window.strides[axis] - before
            elements = starts[:, None] + np.arange(window.kernel[axis]) * dilation
            counted.append(((elements >= low) & (elements < high)).sum(axis=1))
        return np.asarray(reduce(np.multiply.outer, counted))


def read_pool(node: NodeView[Any], sizes: Sizes, *, has_same_lower: bool = False) -> Pool:
    """Return the node's pooling window over spatial `sizes`."""
    window = read_window(node, sizes, tuple(node.attribute("kernel_shape")), has_same_lower=has_same_lower)
    declared, auto_pad = window.after, node.attribute("auto_pad", "NOTSET")
    if auto_pad.startswith("SAME"):
        _refuse_disputed(node, window)
    if node.attribute("ceil_mode", 0) and auto_pad == "NOTSET":
        window = _apply_ceil_mode(node, window)
    return Pool(window, declared)


def _refuse_disputed(node: NodeView[Any], window: Window) -> None:
    """Refuse auto_pad that ONNX Runtime pads differently: it ignores dilations, and crops under large strides."""
    dilated = any(d != 1 for d in window.dilations)
    if dilated or any(stride > kernel for stride, kernel in zip(window.strides, window.kernel, strict=True)):
        node.unsupported(
            "auto_pad with dilations or with strides larger than the kernel, on which ONNX Runtime and the ONNX "
            "specification differ; give it explicit pads"
        )


def _apply_ceil_mode(node: NodeView[Any], window: Window) -> Window:
    """Enlarge the end padding so that rounding down gives the sizes of ceil_mode.

    A last window that would start in the end padding is dropped, as ONNX Runtime and PyTorch do.
    """
    after = []
    for axis, size in enumerate(window.input):
        before, extent, stride = window.before[axis], window.extent[axis], window.strides[axis]
        declared = window.after[axis]
        if size is None:
            if extent <= declared + stride - 1:
                node.unsupported("ceil_mode over an open size; fix the size with --shape NAME=...")
            # floor((n + stride - 1) / stride) is ceil(n / stride), and no window starts in the padding.
            after.append(declared + stride - 1)
            continue
        count = ceil((size + before + declared - extent) / stride) + 1
        if (count - 1) * stride >= size + before:
            count -= 1
        # The last window's end, which may also lie before the declared one.
        after.append(max((count - 1) * stride + extent - size - before, 0))
    return replace(window, after=tuple(after))


# ---- transposed convolution


@dataclass(frozen=True)
class Transposed:
    """A transposed window: `window.before` and `after` crop the full result, `extra` extends its end."""

    window: Window
    extra: tuple[int, ...]

    @property
    def full(self) -> tuple[int | None, ...]:
        """Spatial sizes before anything is cut."""
        window = self.window
        return tuple(
            None if size is None else (size - 1) * stride + extent
            for size, stride, extent in zip(window.input, window.strides, window.extent, strict=True)
        )

    @property
    def beyond(self) -> tuple[int, ...]:
        """Elements past the end of the full result, which hold the bias alone."""
        return tuple(max(0, e - a) for e, a in zip(self.extra, self.window.after, strict=True))

    @property
    def excess(self) -> tuple[int, ...]:
        """Elements to cut off the end."""
        return tuple(max(0, a - e) for e, a in zip(self.extra, self.window.after, strict=True))

    def with_unit_axis(self) -> Transposed:
        return Transposed(self.window.with_unit_axis(), (0, *self.extra))


def read_transposed_window(node: NodeView[Any], kernel: tuple[int, ...]) -> Transposed:
    """Return the node's window, with auto_pad and output_shape resolved into pads."""
    spatial, sizes = len(kernel), tuple(node.x.shape[2:])
    none = (0,) * spatial
    extra = tuple(node.attribute("output_padding", none))
    wanted = node.attribute("output_shape", None)
    window, auto_pad = _declared_window(node, sizes, kernel)
    if auto_pad == "VALID":
        window = replace(window, before=none, after=none)
    if wanted is None and auto_pad in ("NOTSET", "VALID"):
        return Transposed(window, extra)
    if wanted is None:
        # The result is to have size * stride elements, whatever the size.
        totals = [k - s + e for k, s, e in zip(window.extent, window.strides, extra, strict=True)]
    else:
        if None in sizes:
            node.unsupported("output_shape over an open size; fix the input's size with --shape NAME=...")
        full = Transposed(window, extra).full
        totals = [(f or 0) + e - t for f, e, t in zip(full, extra, wanted[-spatial:], strict=True)]
    if wanted is None and any(total < 0 for total in totals):
        node.unsupported(
            f"auto_pad {auto_pad} with a kernel smaller than its stride, on which ONNX Runtime and the ONNX "
            "specification differ; give it explicit pads"
        )
    # A larger result than the full one ends in elements that hold the bias alone.
    extra = tuple(e + max(0, -t) for e, t in zip(extra, totals, strict=True))
    totals = [max(0, total) for total in totals]
    # ONNX ConvTranspose-22: SAME_UPPER puts the smaller half at the start, anything else at the end.
    halves = [(t // 2, t - t // 2) if auto_pad == "SAME_UPPER" else (t - t // 2, t // 2) for t in totals]
    return Transposed(
        replace(window, before=tuple(b for b, _ in halves), after=tuple(a for _, a in halves)), extra
    )
