"""The algebra of axis orders, held against NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onnxport.converters.tflite import layout
from onnxport.converters.tflite.builder import TflBuilder
from onnxport.converters.tflite.layout import Permutation
from onnxport.converters.tflite.values import Value

SIZES = st.lists(st.integers(1, 4), max_size=5)


@st.composite
def orders(draw: st.DrawFn, rank: int) -> Permutation:
    return tuple(draw(st.permutations(range(rank))))


@st.composite
def shape_and_orders(draw: st.DrawFn, count: int) -> tuple[list[int], list[Permutation]]:
    shape = draw(SIZES)
    return shape, [draw(orders(len(shape))) for _ in range(count)]


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[list[int], list[int], Permutation]:
    """Two shapes of the same elements, the second by merging, splitting and adding axes, and an order."""
    before = draw(SIZES)
    after: list[int] = []
    for size in before:
        if after and draw(st.booleans()):
            after[-1] *= size
        else:
            after.append(size)
    split = [part for size in after for part in _factors(size, draw(st.booleans()))]
    for _ in range(draw(st.integers(0, 2))):
        split.insert(draw(st.integers(0, len(split))), 1)
    return before, split, draw(orders(len(before)))


def _factors(size: int, divide: bool) -> list[int]:
    smallest = next((n for n in range(2, size) if size % n == 0), size)
    return [smallest, size // smallest] if divide and smallest < size else [size]


def number_elements(shape: Sequence[int]) -> np.ndarray:
    return np.arange(prod(shape)).reshape(shape)


@given(shape_and_orders(2))
def test_between_takes_one_order_to_the_other(drawn: tuple[list[int], list[Permutation]]) -> None:
    shape, (source, target) = drawn
    x = number_elements(shape)
    moved = x.transpose(source).transpose(layout.transpose_between(source, target))
    assert np.array_equal(moved, x.transpose(target))
    assert layout.permute(shape, target) == moved.shape


@given(shape_and_orders(2))
def test_a_transpose_only_renames_the_axes(drawn: tuple[list[int], list[Permutation]]) -> None:
    shape, (physical, transpose) = drawn
    x = number_elements(shape)
    order = layout.after_transpose(physical, transpose)
    assert np.array_equal(x.transpose(physical), x.transpose(transpose).transpose(order))


@given(shape_and_orders(1))
def test_moving_axes_of_size_one_is_a_reshape(drawn: tuple[list[int], list[Permutation]]) -> None:
    shape, (transpose,) = drawn
    x = number_elements(shape)
    moved = x.transpose(transpose)
    assert (
        layout.moves_no_data(shape, transpose) == np.array_equal(moved.reshape(-1), x.reshape(-1))
        or x.size == 1
    )


@given(reshapes())
@example(([2, 3, 4, 5], [6, 20], (2, 3, 0, 1)))
@example(([2, 6, 1, 4], [2, 2, 3, 1, 4], (0, 2, 3, 1)))
def test_groups_of_a_reshape_hold_the_same_elements(drawn: tuple[list[int], list[int], Permutation]) -> None:
    before, after, _ = drawn
    groups = layout.reshape_groups(before, after)
    assert groups is not None
    assert [axis for ins, _ in groups for axis in ins] == list(range(len(before)))
    assert [axis for _, outs in groups for axis in outs] == list(range(len(after)))
    for ins, outs in groups:
        assert prod(before[a] for a in ins) == prod(after[a] for a in outs)


@given(reshapes())
@example(([2, 3, 4, 5], [6, 20], (2, 3, 0, 1)))
@example(([2, 4, 3, 3], [2, 2, 2, 3, 3], (0, 2, 3, 1)))
def test_a_reshape_in_place_is_what_numpy_reshapes(drawn: tuple[list[int], list[int], Permutation]) -> None:
    before, after, physical = drawn
    order = layout.reshape_in_place(before, after, physical)
    if order is None:
        return
    x = number_elements(before)
    lying = x.transpose(physical).reshape(layout.permute(after, order))
    assert np.array_equal(lying, x.reshape(after).transpose(order))


def test_channels_last_tensors_are_reshaped_where_they_lie() -> None:
    nhwc = layout.channels_last(4)
    assert layout.reshape_in_place([2, 6, 4, 5], [2, 6, 20], nhwc) == (0, 2, 1)
    assert layout.reshape_in_place([2, 6, 4, 5], [2, 2, 3, 4, 5], nhwc) == (0, 3, 4, 1, 2)
    assert layout.reshape_in_place([2, 6, 4, 5], [2, 24, 5], nhwc) is None


def test_sizes_that_disagree_have_no_groups() -> None:
    assert layout.reshape_groups([2, 3], [7]) is None
    assert layout.reshape_groups([], [1, 1]) == [((), (0,)), ((), (1,))]


NCHW, NHWC, NWHC = (0, 1, 2, 3), (0, 2, 3, 1), (0, 3, 2, 1)


@pytest.mark.parametrize(
    ("large", "small", "expected"),
    [
        (NCHW, NHWC, NHWC),
        (NHWC, NCHW, NHWC),
        (NWHC, NHWC, NWHC),  # ResNeSt's split attention: a gate per channel
        (NWHC, NCHW, NWHC),
        (NCHW, NWHC, NCHW),
    ],
)
def test_operands_meet_in_the_order_of_the_larger_or_channels_last(
    large: Permutation, small: Permutation, expected: Permutation
) -> None:
    tensor: Any = None
    values = [
        Value(shape, np.dtype(np.float32), copies={order: tensor})
        for shape, order in (((2, 8, 5, 4), large), ((2, 8, 1, 1), small))
    ]
    assert TflBuilder().common_order(*values) == expected
    assert TflBuilder().common_order(*reversed(values)) == expected
