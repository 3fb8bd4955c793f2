"""Sizes, bounds and axes computed at run time, whatever the target."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

import numpy as np

from onnxport.converters.formulas import IntegerFormula
from onnxport.converters.lowering import NodeView

F = TypeVar("F", bound=IntegerFormula)

# "To the end" of an axis.
LIMIT = np.iinfo(np.int32).max


def clamp_bounds(size: F, start: F, end: F, backwards: F, is_cut: F | None = None) -> tuple[F, F]:
    """Return the first index of a slice and the index behind its last, clamped as ONNX does.

    Args:
        backwards: a condition, where the step is negative; -1 then lies behind the last index.
        is_cut: a condition, where the axis is cut at all.
    """
    # ONNX clamps a backward slice's start to the first element, where NumPy gives nothing.
    highest, lowest = backwards.where(size - 1, size), backwards.where(-1, 0)
    if is_cut is not None:
        end = is_cut.where(end, LIMIT)
    # ONNX Runtime reads the largest integer as "through the last one" backwards as well.
    end = end.equals(LIMIT).where(backwards.where(-LIMIT, LIMIT), end)
    first = start.within(size).maximum(0).minimum(highest)
    return first, end.within(size).maximum(lowest).minimum(highest)


def refuse_disputed_end(node: NodeView[Any]) -> NoReturn:
    """Refuse a backward slice to the largest integer."""
    node.unsupported(
        "steps backwards to the largest integer: ONNX selects nothing, ONNX Runtime everything; "
        "write the smallest integer for the end"
    )


def even_parts(length: F, count: int) -> F:
    """Return `count` equal sizes that add up to `length`, the last ones smaller."""
    part = (length + (count - 1)) // count
    starts = part.binary("mul", np.arange(count), swapped=True)
    return (length - starts).minimum(part).maximum(0)


def squeeze_table(kept: F, rank: int) -> F:
    """Return [axes, rank]: row i holds a 1 at the axis of the result that gets the size of axis i.

    Args:
        kept: [axes], 1 for those that stay, 0 for those that Squeeze removes.
        rank: of the result.
    """
    places = (kept.running_sum() - 1).column()
    return places.equals(np.arange(rank)[None, :]).as_numbers() * kept.column()


def run_time_axes(node: NodeView[Any], shape: tuple[int | None, ...]) -> int:
    """Return the number of axes in an operand of `shape`; refuses an unknown one."""
    if shape[0] is None:
        node.unsupported("the number of its axes (input 1) is known only at run time")
    return shape[0]


def squeezed_axes(node: NodeView[Any], shape: tuple[int | None, ...]) -> list[int]:
    """Return the axes that Squeeze removes where it names none; refuses open sizes."""
    if None in shape:
        node.unsupported(
            "takes out all axes of size 1, where others are open; fix them with --shape NAME=..., or give it axes"
        )
    return [axis for axis, size in enumerate(shape) if size == 1]
