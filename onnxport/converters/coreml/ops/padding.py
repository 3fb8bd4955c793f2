"""Pad: by a constant, by reflection, by the edge or by going round; by amounts known at run time as well."""

from __future__ import annotations

import numpy as np

from onnxport.converters.coreml.axes import normalized
from onnxport.converters.coreml.builder import MilBuilder
from onnxport.converters.coreml.integers import Integers, axis_table, counted, integers, size_of
from onnxport.converters.coreml.ops.indexing import picked
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.values import Value
from onnxport.converters.lowering import NodeView

Node = NodeView[Value]

# ONNX's mode -> MIL's.
_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate"}


@lower("Pad")
def pad(node: Node, mil: MilBuilder) -> None:
    """Extends axes by a constant, by reflection, by the edge or by going round (ONNX Pad-21)."""
    x, mode = node.x, node.attribute("mode", "constant")
    if mode not in (*_MODES, "wrap"):
        node.unsupported(f"mode {mode!r}")
    before, after = _amounts_per_axis(node, mil)
    fill = node.optional(2)  # for the constant mode only
    if mode == "constant" and fill is None:
        fill = mil.constant(np.zeros((), x.dtype))
    if _is_mil_s(mil, x, before, after, mode, fill):
        node.emit(_padded(mil, x, before, after, mode, fill))
        return
    for axis, (first, last) in enumerate(zip(before, after, strict=True)):
        if first.known is None or last.known is None or first.known or last.known:
            x = _extended(mil, x, axis, first, last, mode, fill)
    node.emit(x)


def _amounts_per_axis(node: Node, mil: MilBuilder) -> tuple[list[Integers], list[Integers]]:
    """How much is put before and after every axis, scalars; ONNX lists all starts, then all ends."""
    rank, amounts, axes = node.x.rank, integers(mil, node.input(1)), node.optional(3)
    count = rank if axes is None else axes.shape[0]
    if count is None:
        node.unsupported("the number of padded axes is known only at run time")
    pair = [amounts.part(0, count), amounts.part(count, 2 * count)]
    if axes is not None and axes.constant is None:
        table = axis_table(mil, axes, rank)
        spread = [(table * each).summed(1) for each in pair]
        before, after = ([each.element(axis) for axis in range(rank)] for each in spread)
        return before, after
    targets = range(rank) if axes is None else [normalized(int(a), rank) for a in axes.constant.reshape(-1)]
    before, after = ([Integers(mil, 0)] * rank for _ in pair)
    for place, axis in enumerate(targets):
        before[axis], after[axis] = (each.element(place) for each in pair)
    return before, after


def _is_mil_s(
    mil: MilBuilder, x: Value, before: list[Integers], after: list[Integers], mode: str, fill: Value | None
) -> bool:
    """Whether MIL's pad says it: of floats, by amounts that are known and not negative, one fill.

    Reflection and edges only along the last two axes, which is where Core ML is known to have them.
    """
    amounts = [(b.known, a.known) for b, a in zip(before, after, strict=True)]
    if x.dtype.kind in "iub" or any(each is None or each < 0 for pair in amounts for each in pair):
        return False
    if mode == "constant":
        return fill is not None and fill.constant is not None
    used = [axis for axis, pair in enumerate(amounts) if any(pair)]
    room = {"reflect": -1, "edge": 0}.get(mode)
    if room is None or any(axis < x.rank - 2 for axis in used):
        return False
    return all(x.shape[axis] is not None and max(amounts[axis]) <= x.shape[axis] + room for axis in used)


def _padded(
    mil: MilBuilder, x: Value, before: list[Integers], after: list[Integers], mode: str, fill: Value | None
) -> Value:
    pairs = [int(each.known) for pair in zip(before, after, strict=True) for each in pair]
    if not any(pairs):
        return x
    extra = {}
    if mode == "constant":
        extra["constant_val"] = float(fill.constant.reshape(-1)[0])
    else:
        pairs = pairs[-4:]
    return mil.pad(x=x, pad=pairs, mode=_MODES[mode], **extra)


def _extended(
    mil: MilBuilder, x: Value, axis: int, before: Integers, after: Integers, mode: str, fill: Value | None
) -> Value:
    """One axis gathered from its own elements, of which negative amounts cut some off."""
    start, end = before.negated().maximum(0), after.negated().maximum(0)
    length = size_of(mil, x, axis) - start - end
    first = before.maximum(0)
    places = counted(mil, first + length + after.maximum(0)) - first
    final = length - 1
    if mode == "wrap":
        source = places % length
    elif mode == "reflect":
        period = (final * 2).maximum(1)
        source = final - ((places % period) - final).absolute()
    else:
        source = places.maximum(0).minimum(final)
    result = picked(mil, x, axis, source + start)
    if mode != "constant":
        return result
    is_own = (places >= 0).and_(places < length)
    if is_own.known is not None and is_own.known.all():
        return result
    form = [-1 if i == axis else 1 for i in range(x.rank)]
    assert fill is not None
    value = _scalar(mil, fill)
    if x.dtype.kind == "b":
        value = Value((), np.dtype(np.int32), copies={"int32": mil.var(value, "int32")})
    result.dtype = np.dtype(np.int32) if x.dtype.kind == "b" else x.dtype
    filled = mil.select(cond=is_own.reshaped(*form).value, a=result, b=value)
    filled.dtype = x.dtype
    return filled


def _scalar(mil: MilBuilder, fill: Value) -> Value:
    if fill.constant is not None:
        return mil.constant(fill.constant.reshape(()))
    return mil.squeeze(x=fill) if fill.rank else fill
