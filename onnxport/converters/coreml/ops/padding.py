"""Pad, with constant or run-time amounts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder, MilNode
from onnxport.converters.coreml.ops.indexing import gather_at, to_gatherable
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.shapes.integers import (
    Integers,
    arange,
    axis_table,
    integers,
    named_axes,
    size_of,
)
from onnxport.converters.coreml.values import Value
from onnxport.converters.windows import Window

# ONNX's mode -> MIL's.
_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate"}


@lower("Pad")
def pad(node: MilNode, mil: MilBuilder) -> None:
    """Extend axes by a constant, by reflection, by the edge or by wrapping (ONNX Pad-21)."""
    x, mode = node.x, node.attribute("mode", "constant")
    if mode not in (*_MODES, "wrap"):
        node.unsupported(f"mode {mode!r}")
    before, after = _amounts_per_axis(node, mil)
    fill = node.optional(2)  # for the constant mode only
    if fill is None:
        fill = mil.constant(np.zeros((), x.dtype))
    amounts = [each.number for pair in zip(before, after, strict=True) for each in pair]
    known = [amount for amount in amounts if amount is not None]
    if len(known) == len(amounts) and _is_native(x, known, mode, fill):
        if not any(known):
            node.emit(x)
        elif mode == "constant":
            assert fill.constant is not None
            number = float(fill.constant.reshape(-1)[0])
            node.emit(mil.pad(x=x, pad=known, mode="constant", constant_val=number))
        else:
            node.emit(mil.pad(x=x, pad=known[-4:], mode=_MODES[mode]))
        return
    for axis, (first, last) in enumerate(zip(before, after, strict=True)):
        if (first.number, last.number) != (0, 0):
            x = _extend(mil, x, axis, first, last, mode, fill)
    node.emit(x)


def _amounts_per_axis(node: MilNode, mil: MilBuilder) -> tuple[list[Integers], list[Integers]]:
    """Return the padding before and after every axis, scalars; ONNX lists all starts, then all ends."""
    rank, amounts, axes = node.x.rank, integers(mil, node.input(1)), node.optional(3)
    count = rank if axes is None else axes.shape[0]
    if count is None:
        node.unsupported("the number of padded axes is known only at run time")
    pair = [amounts.part(0, count), amounts.part(count, 2 * count)]
    if axes is not None and axes.constant is None:
        table = axis_table(mil, axes, rank)
        spread = [(table * each).sum(1) for each in pair]
        before, after = ([each.element(axis) for axis in range(rank)] for each in spread)
        return before, after
    targets = range(rank) if axes is None else named_axes(axes, rank)
    before, after = ([Integers(mil, 0)] * rank for _ in pair)
    for place, axis in enumerate(targets):
        before[axis], after[axis] = (each.element(place) for each in pair)
    return before, after


def _is_native(x: Value, amounts: Sequence[int], mode: str, fill: Value) -> bool:
    """Return whether MIL's pad does it: floats, no cropping, one fill.

    Reflection and edges only along the last two axes, as Core ML documents.

    Args:
        amounts: before and after each axis in turn.
    """
    if not x.is_float or min(amounts, default=0) < 0 or mode == "wrap":
        return False
    if mode == "constant":
        return fill.constant is not None
    room = {"reflect": -1, "edge": 0}[mode]
    most = [max(amounts[2 * axis : 2 * axis + 2]) for axis in range(x.rank)]
    if any(most[:-2]):
        return False
    return all(
        not m or (size is not None and m <= size + room) for m, size in zip(most, x.shape, strict=True)
    )


def _extend(
    mil: MilBuilder, x: Value, axis: int, before: Integers, after: Integers, mode: str, fill: Value
) -> Value:
    """Gather an axis from its own elements; negative amounts crop it."""
    start, end = (-before).maximum(0), (-after).maximum(0)
    length = size_of(mil, x, axis) - start - end
    first = before.maximum(0)
    places = arange(mil, first + length + after.maximum(0)) - first
    result = gather_at(mil, x, axis, _source(places, length, mode) + start)
    is_own = (places >= 0) & (places < length)
    if mode != "constant" or (is_own.known is not None and is_own.known.all()):
        return result
    column = is_own.reshape(*(-1 if i == axis else 1 for i in range(x.rank))).value
    filled = mil.select(cond=column, a=result, b=_scalar(mil, fill))
    filled.dtype = x.dtype
    return filled


def _source(places: Integers, length: Integers, mode: str) -> Integers:
    """Return the element of an axis of `length` that lies at each place, which may be outside."""
    final = length - 1
    if mode == "wrap":
        return places % length
    if mode == "reflect":
        period = (final * 2).maximum(1)
        return final - abs((places % period) - final)
    return places.maximum(0).minimum(final)


def _scalar(mil: MilBuilder, fill: Value) -> Value:
    """Return the fill as a scalar; a bool as an integer, which MIL's select and gather take."""
    fill = to_gatherable(mil, fill)
    if fill.constant is not None:
        return mil.constant(fill.constant.reshape(()))
    return mil.squeeze(x=fill) if fill.rank else fill


# ---- MIL's forms of padding


def interleave_pads(before: Sequence[int], after: Sequence[int]) -> list[int]:
    """Return pads in MIL's order: before and after axis 0, then axis 1 ..."""
    return [pad for pair in zip(before, after, strict=True) for pad in pair]


def pad_spatial(
    mil: MilBuilder, x: Value, before: Sequence[int], after: Sequence[int], fill: float = 0.0
) -> Value:
    """Pad the axes from 2 on."""
    if not any(before) and not any(after):
        return x
    pads = interleave_pads((0, 0, *before), (0, 0, *after))
    return mil.pad(x=x, pad=pads, mode="constant", constant_val=fill)


def window_pads(window: Window) -> dict[str, Any]:
    """Return the padding parameters of conv and of the pools."""
    if (
        (window.same or window.same_lower)
        and None in window.input
        and any(stride != 1 for stride in window.strides)
    ):
        return {"pad_type": "same" if window.same else "same_lower"}
    if not any(window.before) and not any(window.after):
        return {"pad_type": "valid"}
    return {"pad_type": "custom", "pad": interleave_pads(window.before, window.after)}
