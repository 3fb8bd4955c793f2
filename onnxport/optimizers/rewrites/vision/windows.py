"""Windows with positions: Col2Im, MaxPool with indices, MaxUnpool, CenterCropPad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil

import numpy as np
import onnx_ir as ir

from onnxport.optimizers.rewrites.terms import Draft, Term, formula


def _product(sizes: Sequence[int | Term]) -> int | Term:
    result: int | Term = 1
    for size in sizes:
        result = result * size
    return result


def _quotient(a: int | Term, b: int | Term) -> int | Term:
    return a // b if isinstance(a, int) and isinstance(b, int) else _term(a, b) / b


def _term(a: int | Term, b: int | Term) -> Term:
    """Return `a` as a term; at least one operand is one."""
    draft = next(size.draft for size in (a, b) if isinstance(size, Term))
    return draft.term(a, np.int32)


def _element(draft: Draft, index: int, place: int) -> int | Term:
    """Return an element of an operand that holds sizes, as a number if it is known."""
    known = draft.constant_input(index)
    if known is not None:
        return int(known[place])
    return draft.input(index).gather(np.array(place, np.int64)).cast(np.int32)


# ---- CenterCropPad


@formula("CenterCropPad")
def center_crop_pad(draft: Draft) -> list[Term]:
    """Crop or zero-pad axes on both sides to given sizes (ONNX CenterCropPad-18)."""
    x = draft.input(0)
    axes = [axis % x.rank for axis in draft.attribute("axes", range(x.rank))]
    before, after, starts, ends = [], [], [], []
    for place, axis in enumerate(axes):
        size, wanted = x.size(axis), _element(draft, 1, place)
        if isinstance(size, int) and isinstance(wanted, int):
            whole: int | Term = max(size, wanted)
        else:
            whole = _term(size, wanted).maximum(wanted)
        added, surplus = whole - size, whole - wanted
        before.append(_quotient(added, 2))
        after.append(added - before[-1])
        starts.append(_quotient(surplus, 2))
        ends.append(starts[-1] + wanted)
    numbers = np.array(axes, np.int64)
    filled = draft.op("Pad", x, draft.sizes([*before, *after]), None, numbers)
    return [draft.op("Slice", filled, draft.sizes(starts), draft.sizes(ends), numbers)]


# ---- Col2Im


@formula("Col2Im")
def col2im(draft: Draft) -> list[Term]:
    """Add overlapping blocks, given as columns, into an image (ONNX Col2Im-18)."""
    x = draft.input(0)
    (spatial,) = draft.input(1).shape
    assert spatial is not None
    image, block = ([_element(draft, index, i) for i in range(spatial)] for index in (1, 2))
    ones, zeros = (1,) * spatial, (0,) * spatial
    strides, dilations = (draft.attribute(name, ones) for name in ("strides", "dilations"))
    pads = draft.attribute("pads", zeros * 2)
    if spatial > 2 and any(pads) and set(dilations) != {1}:
        draft.unsupported(
            "padded volumes with dilations, on which ONNX Runtime and the ONNX specification differ"
        )
    counts = [
        _quotient(image[i] + (pads[i] + pads[spatial + i] - 1) - (block[i] - 1) * dilations[i], strides[i])
        + 1
        for i in range(spatial)
    ]
    elements, columns, pixels = _product(block), _product(counts), _product(image)
    inside_block = [each.reshape(-1, 1) for each in _unravel(draft.range(elements), block)]
    of_block = [each.reshape(1, -1) for each in _unravel(draft.range(columns), counts)]
    place, is_inside = draft.term(0, np.int32), None
    for i in range(spatial):
        along = of_block[i] * strides[i] + inside_block[i] * dilations[i] - pads[i]
        fits = (along >= 0) & (along < image[i])
        place = place * image[i] + along
        is_inside = fits if is_inside is None else is_inside & fits
    assert is_inside is not None
    # Elements on the padding go to an extra pixel behind the image.
    place = is_inside.where(place, draft.term(pixels, np.int32)).reshape(-1, 1).cast(np.int64)
    batch = x.size(0)
    rows = x.reshape(batch, -1, elements, columns).transpose(2, 3, 0, 1).reshape(elements * columns, -1)
    width = batch * _quotient(x.size(1), elements)
    empty = draft.term(np.zeros((1, 1), x.dtype)).call("Expand", draft.sizes([pixels + 1, width]))
    added = draft.op("ScatterND", empty, place, rows, reduction="add").cut(0, 0, pixels)
    return [added.transpose(1, 0).reshape(batch, -1, *image)]


def _unravel(flat: Term, sizes: Sequence[int | Term]) -> list[Term]:
    """Return the index along each axis of elements counted row by row."""
    places = []
    for size in reversed(sizes):
        places.append(flat.call("Mod", size))
        flat = flat / size
    return places[::-1]


# ---- MaxUnpool


@formula("MaxUnpool")
def max_unpool(draft: Draft) -> list[Term]:
    """Write values at MaxPool's indices, zeros elsewhere (ONNX MaxUnpool-22).

    Overlapping windows name an element several times: the sum is divided by the count.
    """
    x, indices = draft.input(0), draft.input(1)
    spatial = x.rank - 2
    # These only determine the size, which may be given.
    draft.ignore("kernel_shape", "strides", "pads")
    if draft.optional(2) is not None:
        sizes = [_element(draft, 2, axis) for axis in range(x.rank)]
    else:
        kernel, zeros = draft.attribute("kernel_shape", ()), (0,) * spatial
        strides, pads = draft.attribute("strides", (1,) * spatial), draft.attribute("pads", zeros * 2)
        sizes = [x.size(0), x.size(1)]
        for i in range(spatial):
            sizes.append((x.size(2 + i) - 1) * strides[i] + (kernel[i] - pads[i] - pads[spatial + i]))
    values, places = x.cast(np.float32).reshape(-1), indices.reshape(-1, 1)
    empty = draft.term(np.zeros(1, np.float32)).call("Expand", draft.sizes([_product(sizes)]))
    total = draft.op("ScatterND", empty, places, values, reduction="add")
    ones = draft.term(np.ones(1, np.float32)).call("Expand", draft.op("Shape", values, dtype=np.int64))
    count = draft.op("ScatterND", empty, places, ones, reduction="add")
    return [(total / count.maximum(1.0)).reshape(*sizes).cast(x.dtype)]


# ---- MaxPool with indices


@dataclass(frozen=True)
class _Windows:
    """Windows over the spatial axes of a MaxPool, with one entry per axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def extent(self) -> tuple[int, ...]:
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))


def _has_indices(node: ir.Node) -> bool:
    return any(value.name and (value.uses() or value.is_graph_output()) for value in node.outputs[1:])


@formula("MaxPool", _has_indices)
def max_pool_with_indices(draft: Draft) -> list[Term]:
    """Return the maximum of each window and its index, the first of equals (ONNX MaxPool-22)."""
    x = draft.input(0)
    windows = _windows(draft, x)
    spatial = x.rank - 2
    sizes = [x.size(axis) for axis in range(2, x.rank)]
    numbers = _place_numbers(draft, sizes, bool(draft.attribute("storage_order", 0)))
    pads = np.array([0, 0, *windows.before, 0, 0, *windows.after], np.int64)
    wide = draft.op("Pad", x.cast(np.float32), pads, np.array(-np.inf, np.float32))
    places = draft.op("Pad", numbers, pads, np.array(-1, np.int32))
    candidates = (
        [_slice_windows(draft, each, windows, offsets) for each in (wide, places)]
        for offsets in product(*(range(k) for k in windows.kernel))
    )
    best, best_place = next(candidates)
    for value, place in candidates:
        is_larger = value > best
        best, best_place = best.maximum(value), is_larger.where(place, best_place)
    channels = x.size(1)
    images = draft.range(x.size(0)).reshape(-1, 1, *(1,) * spatial) * channels
    first = (images + draft.range(channels).reshape(1, -1, *(1,) * spatial)) * _product(sizes)
    return [best.cast(x.dtype), (best_place + first).cast(np.int64)]


def _windows(draft: Draft, x: Term) -> _Windows:
    """Return the node's windows with auto_pad and ceil_mode resolved."""
    kernel = tuple(draft.attribute("kernel_shape", ()))
    spatial = len(kernel)
    strides, dilations = (draft.attribute(name, (1,) * spatial) for name in ("strides", "dilations"))
    auto_pad = draft.attribute("auto_pad", "NOTSET")
    none = (0,) * 2 * spatial
    pads = draft.attribute("pads", none)
    if auto_pad != "NOTSET":
        pads = none
    found = _Windows(kernel, strides, dilations, pads[:spatial], pads[spatial:])
    sizes = x.shape[2:]
    has_ceil = bool(draft.attribute("ceil_mode", 0)) and auto_pad == "NOTSET"
    if not has_ceil and not auto_pad.startswith("SAME"):
        return found
    if None in sizes:
        draft.unsupported("its indices, with ceil_mode or auto_pad, over an open size; use --shape NAME=...")
    if not has_ceil and (set(dilations) != {1} or any(map(int.__gt__, strides, kernel))):
        draft.unsupported(
            "auto_pad with dilations or with strides larger than the kernel, on which ONNX Runtime and the ONNX "
            "specification differ; give it explicit pads"
        )
    before, after = list(found.before), list(found.after)
    for i, size in enumerate(size or 0 for size in sizes):
        extent, stride = found.extent[i], strides[i]
        if has_ceil:
            count = ceil((size + before[i] + after[i] - extent) / stride) + 1
            # A last window that would start in the end padding is dropped.
            count -= (count - 1) * stride >= size + before[i]
            after[i] = max((count - 1) * stride + extent - size - before[i], 0)
        else:
            total = max((ceil(size / stride) - 1) * stride + extent - size, 0)
            smaller, larger = total // 2, total - total // 2
            before[i], after[i] = (smaller, larger) if auto_pad == "SAME_UPPER" else (larger, smaller)
    return _Windows(kernel, strides, dilations, tuple(before), tuple(after))


def _place_numbers(draft: Draft, sizes: Sequence[int | Term], columns_first: bool) -> Term:
    """Number the pixels, [1, 1, spatial...]: row by row, or the first axis fastest."""
    spatial = len(sizes)
    numbers = draft.term(np.zeros((1, 1, *(1,) * spatial), np.int32))
    for i, size in enumerate(sizes):
        step = _product(sizes[:i]) if columns_first else _product(sizes[i + 1 :])
        along = [-1 if axis == i else 1 for axis in range(spatial)]
        numbers = numbers + draft.range(size).reshape(1, 1, *along) * step
    return numbers


def _slice_windows(draft: Draft, x: Term, windows: _Windows, offsets: Sequence[int]) -> Term:
    """Return the element at the same offsets in every window."""
    starts = [offset * d for offset, d in zip(offsets, windows.dilations, strict=True)]
    ends = [
        start - extent + 1 if start < extent - 1 else np.iinfo(np.int64).max
        for start, extent in zip(starts, windows.extent, strict=True)
    ]
    bounds = [starts, ends, range(2, 2 + len(starts)), windows.strides]
    return draft.op("Slice", x, *(np.array(bound, np.int64) for bound in bounds))
