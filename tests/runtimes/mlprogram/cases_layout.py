"""Draws for operators that move numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.runtimes.mlprogram.draws import (
    ANY,
    FLOATS,
    NARROW,
    Random,
    axes_of,
    axis_of,
    case,
    flag,
    moved,
    shape_of,
    values,
)


@case("reshape")
def reshape(random: Random, opset: int) -> dict[str, Any]:
    x = values(random, shape_of(random), moved(opset))
    shape = [int(size) for size in x.shape]
    kind = random.integers(4)
    if kind == 0:  # two axes become one
        shape = [*shape[:-2], int(np.prod(shape[-2:]))]
    if kind == 1:
        shape = [1, *shape] if len(shape) < 5 else [int(x.size)]
    if kind == 2:  # zeros keep a size
        shape = [0 if flag(random) else size for size in shape]
    if kind == 3 and opset >= 17 and len(shape) < 4:  # counted from the end, 1 where there is none
        shape = [0, 0, *(0 for _ in shape)]
    if flag(random):
        fixed = [place for place, size in enumerate(shape) if size > 0]
        if fixed:
            shape[int(random.choice(fixed))] = -1
    return {"x": x, "shape": np.array(shape, np.int32)}


@case("expand_dims")
def expand_dims(random: Random, opset: int) -> dict[str, Any]:
    x = values(random, shape_of(random, 0, 3), moved(opset))
    count = int(random.integers(1, 3))
    rank = x.ndim + count
    axes = random.permutation(rank)[:count]
    return {"x": x, "axes": [int(axis) - rank * int(random.integers(2)) for axis in axes]}


@case("squeeze")
def squeeze(random: Random, opset: int) -> dict[str, Any]:
    # Some axis stays: of single numbers Apple's own computation gives rank 2.
    shape = [*shape_of(random, 0, 2, 4), 2, 1]
    shape.insert(int(random.integers(len(shape))), 1)
    ones = [axis for axis, size in enumerate(shape) if size == 1]
    x = values(random, tuple(shape), moved(opset))
    if flag(random):
        return {"x": x}
    chosen = random.permutation(ones)[: int(random.integers(1, len(ones) + 1))]
    return {"x": x, "axes": [int(axis) - len(shape) * int(random.integers(2)) for axis in chosen]}


@case("transpose")
def transpose(random: Random, opset: int) -> dict[str, Any]:
    x = values(random, shape_of(random), moved(opset))
    return {
        "x": x,
        "perm": [int(axis) - x.ndim * int(random.integers(2)) for axis in random.permutation(x.ndim)],
    }


@case("flatten2d")
def flatten2d(random: Random, opset: int) -> dict[str, Any]:
    # Between two axes: the product of none is a float to Apple's own computation, which then fails.
    x = values(random, shape_of(random, 2), ANY)
    return {"x": x, "axis": int(random.integers(1, x.ndim)) - x.ndim * int(random.integers(2))}


@case("concat")  # interleaved: Apple's own computation leaves it out
def concat(random: Random, opset: int) -> dict[str, Any]:
    shape, count = list(shape_of(random)), int(random.integers(1, 4))
    axis = axis_of(random, len(shape))
    first = values(random, tuple(shape), ANY)
    parts = [first]
    for _ in range(count):
        shape[axis] = int(random.integers(1, 4))
        parts.append(values(random, tuple(shape), (first.dtype.name,)))
    return {"values": parts, "axis": axis}


@case("stack")
def stack(random: Random, opset: int) -> dict[str, Any]:
    first = values(random, shape_of(random, 0, 4), ANY)
    parts = [
        first,
        *(values(random, first.shape, (first.dtype.name,)) for _ in range(int(random.integers(3)))),
    ]
    return {"values": parts, "axis": int(random.integers(-first.ndim - 1, first.ndim + 1))}


@case("split")
def split(random: Random, opset: int) -> dict[str, Any]:
    sizes = [int(size) for size in random.integers(1, 4, int(random.integers(2, 4)))]
    even = flag(random)
    shape = list(shape_of(random, 1, 4))
    axis = axis_of(random, len(shape))
    shape[axis] = 3 * len(sizes) if even else sum(sizes)
    x = values(random, tuple(shape), ANY)
    if even:
        return {"x": x, "num_splits": len(sizes), "axis": axis}
    return {"x": x, "split_sizes": sizes, "axis": axis} | ({"num_splits": len(sizes)} if flag(random) else {})


@case("tile")
def tile(random: Random, opset: int) -> dict[str, Any]:
    x = values(random, shape_of(random, largest=3), ANY)
    return {"x": x, "reps": random.integers(1, 4, x.ndim).astype(np.int32)}


@case("reverse")
def reverse(random: Random, opset: int) -> dict[str, Any]:
    x = values(random, shape_of(random), moved(opset))
    return {"x": x} | ({"axes": axes_of(random, x.ndim)} if flag(random) else {})


@case("band_part")
def band_part(random: Random, opset: int) -> dict[str, Any]:
    x = values(random, shape_of(random, 2, 4), ANY)
    return {"x": x, "lower": int(random.integers(-1, 4)), "upper": int(random.integers(-1, 4))}


@case("slice_by_index")
def slice_by_index(random: Random, opset: int) -> dict[str, Any]:
    x = values(random, shape_of(random, largest=7), ("float32", "int32"))
    return {"x": x, **_ranges(random, x.shape)}


def _ranges(random: Random, shape: tuple[int, ...], squeezing: bool = True) -> dict[str, Any]:
    begins, ends, strides, masks = [], [], [], []
    for size in shape:
        low, high = sorted(int(each) for each in random.integers(0, size + 1, 2))
        low, high = (low, high) if high > low else (0, size)
        step = int(random.choice([1, 1, 2, 3, -1, -2]))
        first, last = (low, high) if step > 0 else (high - 1, low - 1)
        # -1 would be the last element: only a mask reaches beyond the first.
        beyond = last == -1 and step < 0
        masks.append([flag(random), beyond or flag(random), False])
        if flag(random):
            first, last = first - size, last - size if last < size else last
        if squeezing and random.random() < 0.2:
            masks[-1] = [False, False, True]
        begins.append(first)
        ends.append(last)
        strides.append(step)
    begin_mask, end_mask, squeeze_mask = (list(each) for each in zip(*masks, strict=True))
    if all(squeeze_mask):
        squeeze_mask[0] = False
    return {
        "begin": np.array(begins, np.int32),
        "end": np.array(ends, np.int32),
        "stride": np.array(strides, np.int32),
        "begin_mask": begin_mask,
        "end_mask": end_mask,
        "squeeze_mask": squeeze_mask,
    }


@case("slice_update")
def slice_update(random: Random, opset: int) -> dict[str, Any]:
    x = values(random, shape_of(random, largest=7), (*ANY, *NARROW))
    ranges = _ranges(random, x.shape, squeezing=False)
    place = tuple(
        slice(None if no_begin else int(begin), None if no_end else int(end), int(step))
        for begin, end, step, no_begin, no_end in zip(
            *(ranges[name] for name in ("begin", "end", "stride", "begin_mask", "end_mask")), strict=True
        )
    )
    return {"x": x, "update": values(random, x[place].shape, (x.dtype.name,)), **ranges}


@case("slice_by_size")
def slice_by_size(random: Random, opset: int) -> dict[str, Any]:
    x = values(random, shape_of(random, largest=7), moved(opset))
    begin = [int(random.integers(0, size)) for size in x.shape]
    size = [
        -1 if random.random() < 0.3 else int(random.integers(1, length - first + 1))
        for length, first in zip(x.shape, begin, strict=True)
    ]
    return {"x": x, "begin": np.array(begin, np.int32), "size": np.array(size, np.int32)}


@case("pad")
def pad(random: Random, opset: int) -> dict[str, Any]:
    x = values(random, shape_of(random, 1, 4), FLOATS)
    mode = str(random.choice(["constant", "reflect", "replicate"]))
    axes = int(random.integers(1, x.ndim + 1))
    room = [3 if mode == "constant" else size - (mode == "reflect") for size in x.shape[x.ndim - axes :]]
    widths = [int(random.integers(0, most + 1)) for most in room for _ in range(2)]
    if axes < x.ndim:
        widths = [0] * (2 * (x.ndim - axes)) + widths  # a run-time pad has all axes
    given = {"x": x, "pad": np.array(widths, np.int32), "mode": mode}
    return given | ({"constant_val": x.dtype.type(1.5)} if mode == "constant" and flag(random) else {})
