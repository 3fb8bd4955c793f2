"""Ops that move, cut, pick, write and count, drawn at random, against ONNX Runtime: right or refused, at every size.

The families that TFLite's tests drew first are drawn here as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.conformance.coreml import CoremlConformance
from tests.conformance.harness import Array
from tests.converters.tflite import test_random_nodes, test_random_operands
from tests.converters.tflite.test_random_nodes import Drawn, check

SEEDS = 12  # per family; hundreds were run when the families were written
MORE = {"slice_": 24, "slice_at_run_time": 40}  # whose directions, ends and axes are many
_DTYPES = (np.float32, np.float32, np.float16, np.int64, np.int32, np.int8, np.uint8, bool)


def _numbers(draw: Drawn, shape: list[int]) -> Array:
    return (draw.floats(*shape) * 9).astype(draw.choice(*_DTYPES))


def _shape(draw: Drawn, low: int = 0, high: int = 4) -> list[int]:
    return draw.sizes(draw.size(low, high), 1, 4)


def _int64(*values: Any) -> Array:
    return np.array(values, np.int64)


def gather(draw: Drawn) -> None:
    shape = _shape(draw, 1)
    axis = draw.size(-len(shape), len(shape) - 1)
    wanted = draw.sizes(draw.size(0, 5 - len(shape)), 1, 3)
    indices = draw.random.integers(-shape[axis], shape[axis], wanted)
    x = draw.input(_numbers(draw, shape))
    draw.node("Gather", x, draw.operand(indices.astype(draw.choice(np.int32, np.int64))), axis=axis)


def gather_nd(draw: Drawn) -> None:
    shape = _shape(draw, 1)
    batch = draw.size(0, len(shape) - 1)
    depth = draw.size(1, len(shape) - batch)
    leading = [*shape[:batch], *draw.sizes(draw.size(0, 1), 1, 3)]
    limits = np.array(shape[batch : batch + depth])
    indices = draw.random.integers(-limits, limits, (*leading, depth))
    x = draw.input(_numbers(draw, shape))
    draw.node("GatherND", x, draw.operand(indices), batch_dims=batch)


def concat(draw: Drawn) -> None:
    shape = _shape(draw, 1, 5)
    axis = draw.size(-len(shape), len(shape) - 1)
    values = [_numbers(draw, shape)]
    for _ in range(draw.size(0, 3)):
        other = list(shape)
        other[axis] = draw.size(1, 3)
        values.append((draw.floats(*other) * 9).astype(values[0].dtype))
    names = [draw.input(values[0]), *(draw.operand(value) for value in values[1:])]
    draw.node("Concat", *names, axis=axis)


def expand(draw: Drawn) -> None:
    full = _shape(draw, 1, 5)
    own = [draw.choice(size, 1) for size in full][draw.size(0, len(full)) :]
    asked = [draw.choice(size, 1) if size in own else size for size in full]
    asked = [
        size if len(full) - i > len(own) or own[i - len(full)] == 1 else draw.choice(size, 1)
        for i, size in enumerate(full)
    ]
    x = draw.input(_numbers(draw, own))
    draw.node("Expand", x, draw.operand(_int64(*asked[draw.size(0, max(0, len(full) - len(own))) :])))


def tile(draw: Drawn) -> None:
    shape = _shape(draw, 1, 5)
    x = draw.input(_numbers(draw, shape))
    draw.node("Tile", x, draw.operand(_int64(*(draw.size(1, 3) for _ in shape))))


def reshape(draw: Drawn) -> None:
    shape = _shape(draw, 0, 5)
    left = int(np.prod(shape))
    wanted = []
    while left > 1 and len(wanted) < 4 and draw.choice(True, True, False):
        divisor = draw.choice(*(d for d in range(1, left + 1) if left % d == 0))
        wanted.append(divisor)
        left //= divisor
    wanted += [left] if left > 1 or draw.choice(True, False) else []
    for i, size in enumerate(wanted):
        if i < len(shape) and shape[i] == size and draw.choice(True, False):
            wanted[i] = 0
    if wanted and draw.choice(True, False):
        wanted[draw.size(0, len(wanted) - 1)] = -1
    x = draw.input(_numbers(draw, shape))
    draw.node("Reshape", x, draw.operand(_int64(*wanted)))


def transpose(draw: Drawn) -> None:
    shape = _shape(draw, 0, 5)
    perm = draw.choice({}, {"perm": draw.random.permutation(len(shape)).tolist()}) if shape else {}
    draw.node("Transpose", draw.input(_numbers(draw, shape)), **perm)


def pad(draw: Drawn) -> None:
    """As TFLite's family, with axes and amounts of either sign, known at run time or before."""
    shape = draw.sizes(draw.size(1, 4), 2, 4)
    mode = draw.choice("constant", "constant", "reflect", "edge", "wrap")
    axes = draw.random.permutation(len(shape))[: draw.size(1, len(shape))]
    if draw.choice(True, False):
        axes = np.arange(len(shape))
    low = draw.choice(0, -1)
    amounts = _int64(*(draw.size(low, min(shape[axis] for axis in axes) - 2) for axis in [*axes, *axes]))
    if mode == "reflect":
        amounts = np.maximum(amounts, 0)
    x = draw.input(_numbers(draw, shape))
    dtype = draw.feeds["x"].dtype
    fill = draw.choice("", draw.operand(np.array(1, dtype))) if mode == "constant" else ""
    named = axes - draw.choice(0, len(shape))
    operands = [draw.operand(amounts), fill, draw.operand(named.astype(np.int64))]
    draw.node(
        "Pad", x, *operands[: 2 if len(axes) == len(shape) and (np.diff(axes) == 1).all() else 3], mode=mode
    )


def one_hot(draw: Drawn) -> None:
    shape = _shape(draw, 0, 4)
    depth = draw.size(1, 4)
    indices = draw.random.integers(-depth - 2, depth + 2, shape)
    x = draw.input(indices.astype(draw.choice(np.int64, np.int32, np.float32)))
    pair = draw.choice(np.array([0, 1]), np.array([5, -2])).astype(
        draw.choice(np.float32, np.int64, np.int32)
    )
    count = draw.operand(np.array(depth, draw.choice(np.int64, np.float32)))
    draw.node("OneHot", x, count, draw.operand(pair), axis=draw.size(-len(shape) - 1, len(shape)))


def cum_sum(draw: Drawn) -> None:
    shape = _shape(draw, 1)
    x = draw.input((draw.floats(*shape) * 9).astype(draw.choice(np.float32, np.int64, np.int32)))
    axis = draw.operand(np.array(draw.size(-len(shape), len(shape) - 1), np.int64))
    draw.node("CumSum", x, axis, exclusive=draw.size(0, 1), reverse=draw.size(0, 1))


def compress(draw: Drawn) -> None:
    shape = _shape(draw, 1)
    axis = draw.choice(None, draw.size(-len(shape), len(shape) - 1))
    length = draw.size(1, int(np.prod(shape)) if axis is None else shape[axis])
    condition = draw.random.integers(0, 2, length).astype(bool)
    condition[draw.size(0, length - 1)] = True
    x = draw.input(_numbers(draw, shape))
    draw.node("Compress", x, draw.operand(condition), **({} if axis is None else {"axis": axis}))


def non_zero(draw: Drawn) -> None:
    x = _numbers(draw, _shape(draw, 1, 5))
    x.reshape(-1)[0] = 1
    draw.node("NonZero", draw.input(x))


def reverse_sequence(draw: Drawn) -> None:
    shape = _shape(draw, 2, 5)
    batch = draw.size(0, 1)
    lengths = draw.random.integers(0, shape[1 - batch] + 1, shape[batch])
    x = draw.input(_numbers(draw, shape))
    draw.node("ReverseSequence", x, draw.operand(lengths), batch_axis=batch, time_axis=1 - batch)


def triangle(draw: Drawn) -> None:
    x = draw.input(_numbers(draw, _shape(draw, 2, 5)))
    k = draw.operand(np.array(draw.size(-3, 3), np.int64)) if draw.choice(True, False) else ""
    draw.node("Trilu", x, k, upper=draw.size(0, 1))


def eye(draw: Drawn) -> None:
    x = draw.input(_numbers(draw, draw.sizes(2, 1, 4)))
    draw.node("EyeLike", x, k=draw.size(-2, 2), dtype=draw.choice(1, 6, 7, 9))


def counting(draw: Drawn) -> None:
    dtype = draw.choice(np.float32, np.float32, np.int64, np.int32)
    step = draw.choice(1, 0.1, 0.5, -0.3, 2, -1) if dtype is np.float32 else draw.choice(1, 3, -2)
    start = draw.size(-3, 3) * step
    bounds = [np.array(value, dtype) for value in (start, start + step * draw.choice(1, 3, 7, 2.5, 10), step)]
    draw.node("Range", draw.input(bounds[0]), *(draw.operand(bound) for bound in bounds[1:]))


def sizes(draw: Drawn) -> None:
    """What an exporter makes of x.view(n, -1) and the like: sizes taken apart and put together."""
    shape = _shape(draw, 2, 4)
    x = draw.input(_numbers(draw, shape))
    whole = draw.node("Shape", x)
    axis = draw.size(0, len(shape) - 1)
    one = draw.node("Gather", whole, draw.constant(_int64(axis - draw.choice(0, len(shape)))))
    new = draw.constant(_int64(-1))
    parts = draw.choice([one, new], [new, one], [one, draw.constant(_int64(1)), new])
    target = draw.node("Concat", *parts, axis=0)
    kind = draw.choice("reshape", "size", "range", "fill", "slice", "shape", "expand")
    if kind == "reshape":
        draw.node("Reshape", x, target)
    elif kind == "size":
        draw.node("Reshape", x, draw.node("Unsqueeze", draw.node("Size", x), draw.constant(_int64(0))))
    elif kind == "range":
        limit = draw.node("Squeeze", one)
        draw.node("Range", draw.constant(np.array(0)), limit, draw.constant(np.array(draw.size(1, 2))))
    elif kind == "fill":
        draw.node("ConstantOfShape", whole)
    elif kind == "slice":
        draw.node(
            "Slice", x, draw.constant(_int64(0)), one, draw.constant(_int64(draw.size(0, len(shape) - 1)))
        )
    elif kind == "shape":
        draw.node("Shape", x, start=draw.size(-5, 3), end=draw.size(-2, 5))
    else:
        draw.node("Expand", draw.constant(_numbers(draw, [1])), whole)


def slice_at_run_time(draw: Drawn) -> None:
    """TFLite's family, fed with what 32 bits hold."""
    test_random_operands.slice_at_run_time(draw)
    limit = np.iinfo(np.int32).max
    for name, array in draw.feeds.items():
        if array.dtype == np.int64:
            draw.feeds[name] = array.clip(-limit, limit)


FAMILIES: dict[str, Callable[[Drawn], None]] = {
    each.__name__: each
    for each in (
        *(gather, gather_nd, concat, expand, tile, reshape, transpose, pad, one_hot, cum_sum, compress),
        *(non_zero, reverse_sequence, triangle, eye, counting, sizes),
        slice_at_run_time,
        test_random_operands.split,
        test_random_operands.unit_axes,
        test_random_operands.top_k,
        test_random_operands.gather_elements,
        test_random_operands.scatter_elements,
        test_random_operands.scatter_nd,
        test_random_operands.unique,
        test_random_nodes.slice_,
    )
}
# Families whose other operands fit an input of other sizes too.
OPEN = dict.fromkeys(
    "gather tile transpose pad cum_sum non_zero triangle eye sizes slice_at_run_time split unit_axes top_k "
    "gather_elements scatter_elements scatter_nd slice_".split()
)


def faults(coreml: CoremlConformance, family: str, *, is_open: bool) -> list[str]:
    found = [
        check(coreml, family, seed, is_open=is_open, families=FAMILIES, kept_axes=OPEN, holds_nothing=False)
        for seed in range(MORE.get(family, SEEDS))
    ]
    return list(filter(None, found))


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_accepted_computes_what_onnx_runtime_does(coreml: CoremlConformance, family: str) -> None:
    assert not faults(coreml, family, is_open=False)


@pytest.mark.parametrize("family", OPEN)
def test_one_package_is_right_at_several_sizes(coreml: CoremlConformance, family: str) -> None:
    assert not faults(coreml, family, is_open=True)
