"""Grids and biases: 0 is always on a grid, every value within half a step, and nothing overflows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxport.quantize.grids import (
    Grid,
    WeightGrid,
    activation_grid,
    quantize_bias,
    weight_grid,
    widen_for_bias,
)

_ends = st.floats(-1e6, 1e6, width=32)


@given(low=_ends, high=_ends, dtype=st.sampled_from(["uint8", "int8", "int16"]))
def test_every_value_of_the_range_lies_within_a_step_of_the_grid(low: float, high: float, dtype: str) -> None:
    low, high = min(low, high), max(low, high)
    grid = activation_grid(low, high, dtype)  # type: ignore[arg-type]
    values = np.linspace(low, high, 1001, dtype=np.float32)
    numbers = (grid.quantized(values).astype(np.int64) - grid.zero_point) * np.float64(grid.scale)
    # Half a step of rounding, and another half by which a zero point that is an integer moves the ends.
    assert np.abs(numbers - values).max() <= 1.01 * max(float(grid.scale), 1e-24)
    assert (grid.quantized(np.zeros(1, np.float32)) == grid.zero_point).all()


@given(low=st.floats(-20, -0.1), high=st.floats(0.1, 20), shift=st.floats(0.001, 20))
def test_a_shift_becomes_a_whole_number_of_steps(low: float, high: float, shift: float) -> None:
    before = activation_grid(low, high, "uint8")
    grid = before.align_to(shift)
    if shift < 1.49 * float(before.scale):
        assert grid == before
        return
    steps = shift / float(grid.scale)
    assert abs(steps - round(steps)) < 1e-6 * steps
    assert 0.74 < float(grid.scale / before.scale) < 1.26
    moved = grid.moved(1.0, shift)
    if 0 < moved.zero_point < 255:
        values = np.linspace(grid.low, grid.high, 50, dtype=np.float32)
        integers = grid.quantized(values).astype(np.int64)
        there, here = ((integers - each.zero_point) * float(each.scale) for each in (moved, grid))
        np.testing.assert_allclose(there, here + shift, atol=1e-4)


def test_int16_is_symmetric() -> None:
    assert activation_grid(-1, 8, "int16").zero_point == 0


def test_a_tensor_that_is_always_0_has_a_grid() -> None:
    assert activation_grid(0, 0, "uint8") == Grid(np.float32(1), 0, "uint8")


@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_weights_use_all_of_their_integers(axis: int | None) -> None:
    values = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    grid = weight_grid(values, axis)
    integers = grid.quantized(values)
    others = None if axis is None else 1 - axis % 2
    assert (np.abs(integers).max(axis=others) == 127).all()
    assert np.abs(integers * grid.along(2) - values).max() <= grid.scales.max() * 0.501


@pytest.mark.parametrize("nothing", [0, 1e-22, 1e-44])
def test_a_channel_of_next_to_nothing_has_the_largest_scale(nothing: float) -> None:
    grid = weight_grid(np.array([[nothing, 0], [1.27, 0], [2.54, 0]], np.float32), 0)
    np.testing.assert_allclose(grid.scales, [0.02, 0.01, 0.02])


@pytest.mark.parametrize("axis", [0, None])
def test_a_weight_of_zeros_has_a_grid(axis: int | None) -> None:
    assert (weight_grid(np.zeros((2, 3), np.float32), axis).scales == 1).all()


def test_a_bias_that_int32_does_not_hold_widens_its_channel_alone() -> None:
    weight, data = WeightGrid(np.array([1e-12, 1e-2], np.float32), 0), Grid(np.float32(0.1), 0, "uint8")
    bias = np.array([5.0, 5.0], np.float32)
    wider = widen_for_bias(weight, bias, data)
    assert wider.scales[1] == weight.scales[1]
    stored = quantize_bias(bias, data, wider)
    np.testing.assert_allclose(stored.values * np.float64(stored.scales), bias, rtol=1e-3)
    # Without, the first would have been cut off at 2^31 steps.
    cut = quantize_bias(bias, data, weight)
    assert abs(cut.values[0] * np.float64(cut.scales[0])) < 1e-3
