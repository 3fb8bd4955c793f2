"""Pad, with constant or run-time amounts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from litert_converter.mlir import ir

from onnxport.converters.tflite.builder import TflBuilder, TflNode, optional_constant, require_constant
from onnxport.converters.tflite.layout import normalize_axis, permute
from onnxport.converters.tflite.ops.indexing import add_to_negative
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value
from onnxport.core.arrays import Array


@lower("Pad")
def pad(node: TflNode, tfl: TflBuilder) -> None:
    """Extend axes by a constant, by reflection, by the edge or by wrapping (ONNX Pad-21)."""
    x, mode = node.x, node.attribute("mode", "constant")
    axes = node.optional(3)
    if node.input(1).constant is None or (axes is not None and axes.constant is None):
        node.emit(_pad_at_run_time(node, tfl, mode))
        return
    amounts = require_constant(node, 1, "the amounts of padding").reshape(2, -1)
    targets = _targets(node)
    before, after = [0] * x.rank, [0] * x.rank
    for column, axis in enumerate(targets):
        before[axis], after[axis] = int(amounts[0, column]), int(amounts[1, column])
    x = _crop(tfl, x, before, after)
    before, after = [max(b, 0) for b in before], [max(a, 0) for a in after]
    if mode == "constant":
        fill = tfl.tensor(node.input(2)) if node.has_input(2) else None
        node.emit(_fill(tfl, x, before, after, fill))
        return
    node.optional(2)  # a value for the constant mode only
    # On an open size a larger amount is the caller's error, to ONNX Runtime as well.
    once = all(dim is None or max(b, a) < dim for dim, b, a in zip(x.shape, before, after, strict=True))
    if mode == "reflect" and once:
        node.emit(_mirror(tfl, x, before, after))
    elif mode in _SOURCE:
        node.emit(_copy_elements(node, tfl, x, before, after, mode))
    else:
        node.unsupported(f"mode {mode!r}")


def _crop(tfl: TflBuilder, x: Value, before: Sequence[int], after: Sequence[int]) -> Value:
    """Crop by the negative amounts of padding."""
    if min(*before, *after, 0) >= 0:
        return x
    order = tfl.common_order(x)
    first, last = ([max(-amounts[axis], 0) for axis in order] for amounts in (before, after))
    sizes = zip(permute(x.shape, order), first, last, strict=True)
    shape = [None if dim is None else dim - b - a for dim, b, a in sizes]
    return tfl.value(tfl.crop(tfl.tensor(x, order), first, last, shape), order)


def _fill(
    tfl: TflBuilder, x: Value, before: Sequence[int], after: Sequence[int], fill: Tensor | None
) -> Value:
    order = tfl.common_order(x)
    tensor = tfl.tensor(x, order)
    first, last = [before[axis] for axis in order], [after[axis] for axis in order]
    return tfl.value(tfl.pad(tensor, first, last, None if fill is None else tfl.reshape(fill, ())), order)


def _mirror(tfl: TflBuilder, x: Value, before: Sequence[int], after: Sequence[int]) -> Value:
    order = tfl.common_order(x)
    first, last = [before[axis] for axis in order], [after[axis] for axis in order]
    tensor = tfl.tensor(x, order)
    sizes = zip(tfl.shape_of(tensor), first, last, strict=True)
    shape = [None if dim is None else dim + b + a for dim, b, a in sizes]
    amounts = tfl.int32(np.stack([first, last], axis=1))
    mode = ir.Attribute.parse("#tfl<mirror_pad_attr REFLECT>")
    return tfl.value(tfl.op("mirror_pad", [tensor, amounts], shape, mode=mode), order)


# ---- by the axis's own elements


def _reflect(positions: Array, size: int) -> Array:
    period = max(2 * (size - 1), 1)
    return np.asarray((size - 1) - np.abs((positions % period) - (size - 1)))


# Pad mode -> the element of an axis of `size` that lies at each of `positions`, which may be outside.
_SOURCE: dict[str, Callable[[Array, int], Array]] = {
    "edge": lambda positions, size: np.clip(positions, 0, size - 1),
    "reflect": _reflect,
    "wrap": lambda positions, size: positions % size,
}


def _copy_elements(
    node: TflNode, tfl: TflBuilder, x: Value, before: Sequence[int], after: Sequence[int], mode: str
) -> Value:
    """Gather each padded axis from its own elements."""
    order = tfl.common_order(x)
    tensor = tfl.tensor(x, order)
    for place, axis in enumerate(order):
        size = x.shape[axis]
        if not before[axis] and not after[axis]:
            continue
        if size == 0:
            node.unsupported("pads an empty dimension with its own elements")
        if size is None:
            bounds = [tfl.int32([amounts[axis]]) for amounts in (before, after)]
            indices = _own_elements(tfl, mode, tfl.size(tensor, place), *bounds)
        else:
            indices = tfl.int32(_SOURCE[mode](np.arange(-before[axis], size + after[axis]), size))
        tensor = tfl.gather(tensor, indices, place)
    return tfl.value(tensor, order)


# ---- by amounts computed at run time, int32 [1] per axis


def _pad_at_run_time(node: TflNode, tfl: TflBuilder, mode: str) -> Value:
    x = node.x
    before, after = _amounts_per_axis(node, tfl)
    touched = range(x.rank) if node.has_input(3) and node.input(3).constant is None else _targets(node)
    shape = tuple(None if axis in touched else dim for axis, dim in enumerate(x.shape))
    if mode == "constant":
        fill = tfl.reshape(tfl.tensor(node.input(2)), ()) if node.has_input(2) else tfl.constant(0, x.dtype)
        return _fill_at_run_time(tfl, x, before, after, fill, shape)
    node.optional(2)  # a value for the constant mode only
    if mode not in _SOURCE:
        node.unsupported(f"mode {mode!r}")
    tensor = tfl.tensor(x)
    for axis in touched:
        amounts = [tfl.slice(each, [axis], [1]) for each in (before, after)]
        indices = _own_elements(tfl, mode, tfl.size(tensor, axis), *amounts)
        tensor = tfl.gather(tensor, indices, axis)
    return tfl.value(tensor)


def _targets(node: TflNode) -> Sequence[int]:
    """Return the axes that the amounts are for, which must be constant."""
    axes = optional_constant(node, 3, "axes")
    rank = node.x.rank
    return range(rank) if axes is None else [normalize_axis(int(axis), rank) for axis in axes]


def _amounts_per_axis(node: TflNode, tfl: TflBuilder) -> tuple[Tensor, Tensor]:
    """Return the padding before and after every axis, int32 [rank]; ONNX lists all starts, then all ends."""
    rank, amounts, axes = node.x.rank, node.input(1), node.optional(3)
    count = rank if axes is None else axes.shape[0]
    if count is None:
        node.unsupported("the number of padded axes is known only at run time")
    pairs = tfl.reshape(tfl.tensor(tfl.convert(amounts, np.int32)), (2, count))
    if axes is not None:
        wrapped = add_to_negative(tfl, tfl.convert(axes, np.int32), rank)
        column = tfl.reshape(tfl.tensor(wrapped), (count, 1))
        hits = tfl.op("equal", [column, tfl.int32(np.arange(rank)[None])], (count, rank), bool)
        factors = [tfl.reshape(pairs, (2, count, 1)), tfl.cast(hits, np.int32)]
        spread = tfl.op("mul", factors, (2, count, rank))
        pairs = tfl.op("sum", [spread, tfl.int32([1])], (2, rank), keep_dims=False)
    before, after = (tfl.reshape(tfl.slice(pairs, [row, 0], [1, rank]), (rank,)) for row in (0, 1))
    return before, after


def _fill_at_run_time(
    tfl: TflBuilder, x: Value, before: Tensor, after: Tensor, fill: Tensor, shape: Sequence[int | None]
) -> Value:
    """Crop by negative amounts, then fill: TFLite refuses negative amounts at run time."""
    rank, zero = x.rank, tfl.int32(0)
    cut, added = [], []
    for amounts in (before, after):
        cut.append(tfl.op("maximum", [tfl.op("neg", [amounts], [rank]), zero], [rank]))
        added.append(tfl.op("maximum", [amounts, zero], [rank]))
    total = tfl.op("add", cut, [rank])
    left = tfl.op("sub", [tfl.sizes(tfl.tensor(x)), total], [rank])
    kept = tfl.op("slice", [tfl.tensor(x), cut[0], left], shape)
    pairs = tfl.op("pack", added, [rank, 2], axis=1, values_count=2)
    return tfl.value(tfl.op("padv2", [kept, pairs, fill], shape))


def _own_elements(tfl: TflBuilder, mode: str, size: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """Return the element that lies at each place of the padded axis, int32 [open]; see _SOURCE."""
    zero = tfl.int32([0])

    def op(name: str, *operands: Tensor) -> Tensor:
        open_ = any(tfl.shape_of(operand) == (None,) for operand in operands)
        return tfl.op(name, list(operands), [None] if open_ else [1])

    start, end = (op("maximum", op("neg", amount), zero) for amount in (before, after))
    length = op("sub", op("sub", size, start), end)
    first, last = op("neg", op("maximum", before, zero)), op("add", length, op("maximum", after, zero))
    places = tfl.op("range", [tfl.reshape(t, ()) for t in (first, last, tfl.int32([1]))], [None], np.int32)
    final = op("sub", length, tfl.int32([1]))
    if mode == "edge":
        places = op("minimum", op("maximum", places, zero), final)
    elif mode == "wrap":
        places = op("floor_mod", places, length)
    else:
        period = op("maximum", op("add", final, final), tfl.int32([1]))
        places = op("sub", final, op("abs", op("sub", op("floor_mod", places, period), final)))
    return op("add", places, start)
