"""Values of more dimensions than MIL holds: their elements lie in one row, and each step merges axes.

A pixel shuffle or a window partition splits an image into six axes, swaps some and merges them again. Axes that stay
together are one axis meanwhile, so that every step has five at most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder
from onnxport.converters.coreml.shapes.integers import Integers, concatenate, sizes_of
from onnxport.converters.coreml.values import LARGEST_RANK, Row, Value

Size = int | None | Integers  # None: the one that follows from the others


def is_tall(x: Value, *others: int) -> bool:
    """Return whether a value, or one of the ranks `others`, is beyond MIL."""
    return x.row is not None or max((x.rank, *others)) > LARGEST_RANK


def sizes(mil: MilBuilder, x: Value) -> list[Size]:
    """Return the size of every axis, None for at most one."""
    if x.row is not None:
        return list(x.row.sizes)
    if x.shape.count(None) < 2:
        return list(x.shape)
    actual = sizes_of(mil, x)
    return [actual.element(axis) if dim is None else dim for axis, dim in enumerate(x.shape)]


def product(mil: MilBuilder, parts: Sequence[Size]) -> Size:
    """Return the size of several axes as one."""
    if any(part is None for part in parts):
        return None
    result: int | Integers = prod(part for part in parts if isinstance(part, int))
    for part in parts:
        if isinstance(part, Integers):
            result = part * result
    return result


def reshape(mil: MilBuilder, x: Value, wanted: Sequence[Size]) -> Value:
    """Reshape to any rank."""
    shape = tuple(size if isinstance(size, int) else None for size in wanted)
    if x.constant is not None and None not in shape:
        return mil.constant(x.constant.reshape(shape), x.dtype)
    held = x if x.row is None else x.row.held
    if len(wanted) > LARGEST_RANK:
        row = _reshape(mil, held, [-1])
        return Value(shape, x.dtype, row=Row(row, tuple(wanted)), is_natural=x.is_natural)
    return _reshape(mil, held, [-1 if size is None else size for size in wanted])


def _reshape(mil: MilBuilder, x: Value, wanted: Sequence[int | Integers]) -> Value:
    target = concatenate(mil, wanted or [1])
    given = target.known.tolist() if target.known is not None else target.value
    result: Value = x if given == [-1] and x.rank == 1 else mil.reshape(x=x, shape=given)
    if not wanted:
        result = mil.squeeze(x=result, axes=[0])
    result.dtype = x.dtype
    return result


def apply_along(
    mil: MilBuilder, x: Value, axis: int, change: Callable[[Value], Value], result: Sequence[Size]
) -> Value:
    """Change `x` along one axis.

    Args:
        change: changes axis 1 of 3.
        result: the sizes of the axes that replace it.
    """
    own = sizes(mil, x)
    before, after = own[:axis], own[axis + 1 :]
    changed = change(sides(mil, x, axis))
    changed.dtype = x.dtype
    replaced = [
        size.number if isinstance(size, Integers) and size.number is not None else size for size in result
    ]
    return reshape(mil, changed, [*before, *replaced, *after])


def sides(mil: MilBuilder, x: Value, axis: int) -> Value:
    """Merge the axes before `axis`, and those behind it."""
    own = sizes(mil, x)
    return reshape(mil, x, [product(mil, own[:axis]), own[axis], product(mil, own[axis + 1 :])])


def transpose(mil: MilBuilder, x: Value, perm: Sequence[int]) -> Value:
    """Make axis perm[i] of `x` axis i."""
    own = sizes(mil, x)
    left = [axis for axis in range(len(own)) if own[axis] != 1]
    order = [left.index(axis) for axis in perm if own[axis] != 1]
    starts = [i for i, axis in enumerate(order) if i == 0 or order[i - 1] + 1 != axis]
    runs = [order[start:stop] for start, stop in zip(starts, [*starts[1:], len(order)], strict=True)]
    natural = sorted(runs)
    merged = {run[0]: product(mil, [own[left[axis]] for axis in run]) for run in natural}
    there, wanted = [run[0] for run in natural], [run[0] for run in runs]
    x = reshape(mil, x, [merged[run] for run in there])
    if len(runs) <= LARGEST_RANK:
        if there != wanted:
            x = _permute(mil, x, [there.index(run) for run in wanted])
        return reshape(mil, x, [own[axis] for axis in perm])
    for place, run in enumerate(wanted):
        at = there.index(run)
        if at != place:
            parts = [there[:place], there[place:at], [run], there[at + 1 :]]
            x = reshape(mil, x, [product(mil, [merged[each] for each in part]) for part in parts])
            x = _permute(mil, x, [0, 2, 1, 3])
            there = [*parts[0], run, *parts[1], *parts[3]]
    return reshape(mil, x, [own[axis] for axis in perm])


def _permute(mil: MilBuilder, x: Value, perm: Sequence[int]) -> Value:
    result = mil.transpose(x=x, perm=list(perm))
    result.dtype = x.dtype
    return result


def tile(mil: MilBuilder, x: Value, repeats: Integers) -> Value:
    """Repeat `x` along each axis."""
    for axis in range(x.rank):
        times = repeats.element(axis)
        if times.number == 1:
            continue

        def repeated(part: Value, times: Integers = times) -> Value:
            return mil.tile(x=part, reps=concatenate(mil, [1, times, 1]).value)

        x = apply_along(mil, x, axis, repeated, [times * sizes_of(mil, x).element(axis)])
    return x


def flatten(mil: MilBuilder, x: Value) -> Value:
    """Flatten `x`."""
    if x.row is not None:
        return x.row.held
    if x.constant is not None:
        return mil.constant(np.reshape(x.constant, -1), x.dtype)
    return _reshape(mil, x, [-1])


# ---- elementwise operators

_ELEMENTWISE = frozenset(
    (
        "Abs Add And BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast Ceil Clip Cos Div Elu Equal Erf Exp Floor Gelu "
        "Greater GreaterOrEqual HardSigmoid HardSwish IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Min Mish Mul Neg "
        "Not Or Pow Reciprocal Relu Round Sigmoid Sign Sin Softplus Softsign Sqrt Sub Sum Tan Tanh Where Xor"
    ).split()
)


def flatten_operands(mil: MilBuilder, op: str, operands: Sequence[Value | None]) -> list[Value | None]:
    """Flatten the operands of an elementwise operator; returns none if some cannot be."""
    highest = [x for x in operands if x is not None and is_tall(x)]
    if op not in _ELEMENTWISE or not highest:
        return []
    shape = highest[0].shape
    rows: list[Value | None] = []
    for x in operands:
        if x is None:
            rows.append(None)
        elif x is highest[0] or (x.shape == shape and _is_as_long(mil, x, highest[0])):
            rows.append(flatten(mil, x))
        elif x.constant is not None and x.constant.size == 1:
            rows.append(mil.constant(np.reshape(x.constant, ()), x.dtype))
        elif x.rank == 0:
            rows.append(x)
        else:
            return []
    return rows


def _is_as_long(mil: MilBuilder, x: Value, other: Value) -> bool:
    """Return whether values of one shape, as far as it is known, surely have equally many elements."""
    lengths = [mil.var(flatten(mil, each)).shape for each in (x, other)]
    return bool(lengths[0] == lengths[1])


def restore_shape(mil: MilBuilder, row: Value, operands: Sequence[Value | None]) -> Value:
    """Reshape an elementwise operator's result to the shape of its operands."""
    highest = next(x for x in operands if x is not None and is_tall(x))
    return reshape(mil, row, sizes(mil, highest))
