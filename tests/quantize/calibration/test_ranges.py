"""Ranges: held to a search by brute force and to what the literature says of known distributions."""

import numpy as np
import pytest

from onnxport.quantize.calibration.observers import Histogram
from onnxport.quantize.calibration.ranges import find_range, widen_to_deviations

METHODS = ["minmax", "percentile", "entropy", "mse"]


def histogram_of(values):
    histogram = Histogram(10**9)
    histogram.observe(np.asarray(values, np.float32), 0)
    return histogram


def error(values, low, high, levels=256):
    """Mean squared error of rounding to the grid, computed element by element."""
    step = (high - low) / (levels - 1)
    zero = round(-low / step)
    return np.mean((values - (np.clip(np.round(values / step) + zero, 0, levels - 1) - zero) * step) ** 2)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "values", [[0.5, 3.0], [-4.0, -1.0], [-2.0, 5.0], [0.0], [7.0], [0.0, 1e-30], [-3e38, 3e38]]
)
def test_a_range_holds_zero_and_lies_within_the_extremes(method, values):
    low, high = find_range(histogram_of(values), method)
    assert min(0, *values) <= low <= 0 <= high <= max(0, *values) or np.float32(low) == np.float32(
        min(0, *values)
    )


def test_minmax_is_exact():
    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    assert find_range(histogram_of(values), "minmax") == (values.min(), values.max())


DISTRIBUTIONS = {
    "normal": lambda draw: draw.standard_normal(20000),
    "laplace": lambda draw: draw.laplace(size=20000),
    "relu": lambda draw: np.maximum(draw.standard_normal(20000), 0),
    "relu6": lambda draw: np.clip(draw.standard_normal(20000) * 5, 0, 6),
    "skewed": lambda draw: draw.gumbel(size=20000),
    "outlier": lambda draw: np.append(draw.standard_normal(20000), 300.0),
}


@pytest.mark.parametrize("levels", [16, 256])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_mse_range_is_as_good_as_the_best_of_a_fine_search(name, levels):
    values = DISTRIBUTIONS[name](np.random.default_rng(0)).astype(np.float32).astype(np.float64)
    low, high = min(values.min(), 0), max(values.max(), 0)
    shares = np.linspace(0.02, 1, 99)
    lows = low * shares if low else [0.0]
    best = min(error(values, a, b, levels) for a in lows for b in high * shares)
    assert error(values, *find_range(histogram_of(values), "mse", levels), levels) <= 1.02 * best


def test_percentile_leaves_out_equal_shares():
    values = np.random.default_rng(0).uniform(-1, 3, 1_000_000)
    low, high = find_range(histogram_of(values), "percentile")
    outside = np.mean(values < low), np.mean(values > high)
    # A bin near -1 and 3 is 2^-8 wide, relatively.
    assert all(share < 0.0001 + 2**-8 for share in outside)
    assert high < 3.0


def test_entropy_cuts_a_long_tail_and_no_even_distribution():
    generator = np.random.default_rng(0)
    tail = find_range(histogram_of(np.append(generator.laplace(size=100_000), 200.0)), "entropy")
    assert tail[1] < 60
    even = find_range(histogram_of(generator.uniform(-1, 1, 100_000)), "entropy")
    assert even[1] > 0.9


def test_outputs_of_a_few_numbers_get_room_beyond_them():
    values = np.random.default_rng(0).normal(0.5, 2.0, 48).astype(np.float32)
    low, high = widen_to_deviations(histogram_of(values), (0.0, 1.0))
    wanted = values.mean() - 4 * values.std(), values.mean() + 4 * values.std()
    assert np.allclose((low, high), wanted, rtol=0.01)  # a histogram tells values to 2^-8
    # No value below 0, so no range there; and what is wider already stays.
    assert widen_to_deviations(histogram_of(np.abs(values)), (0.0, 1.0))[0] == 0
    assert widen_to_deviations(histogram_of(values), (-50.0, 60.0)) == (-50.0, 60.0)
