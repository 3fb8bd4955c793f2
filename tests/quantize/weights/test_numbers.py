"""The numbers that stand for weights, and the Gram matrices that GPTQ chooses them by."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from onnxport.quantize.weights import hqq, rtn
from onnxport.quantize.weights.encoding import Grids
from onnxport.quantize.weights.product_inputs import GramMatrix

RANDOM = np.random.default_rng(3)
ROWS = RANDOM.standard_t(4, (40, 96)).astype(np.float32)  # a few far from the rest, as weights are


def plain_error(rows: np.ndarray, bits: int, block: int, *, symmetric: bool) -> float:
    """Of rounding to the nearest number on the grid that just holds the least and the greatest weight of a block."""
    blocks = rows.reshape(-1, block).astype(np.float64)
    if symmetric:
        scales = np.abs(blocks).max(1, keepdims=True) / (2 ** (bits - 1) - 1)
        rounded = np.rint(blocks / scales) * scales
    else:
        low, high = blocks.min(1, keepdims=True), blocks.max(1, keepdims=True)
        scales = (high - low) / (2**bits - 1)
        zero = np.rint(-low / scales)
        rounded = (np.clip(np.rint(blocks / scales) + zero, 0, 2**bits - 1) - zero) * scales
    return float(np.square(rounded - blocks).sum())


@pytest.mark.parametrize(
    ("bits", "symmetric", "gain"), [(4, True, 0.8), (4, False, 0.95), (8, True, 1.0), (8, False, 1.0)]
)
def test_the_error_is_less_than_that_of_the_grid_that_holds_all(
    bits: int, gain: float, symmetric: bool
) -> None:
    encoded = rtn.round_nearest(ROWS, Grids(bits, 32, symmetric))
    assert encoded.error(ROWS) < gain * plain_error(ROWS, bits, 32, symmetric=symmetric)


@pytest.mark.parametrize("function", [rtn.round_nearest, hqq.round_hqq])
@pytest.mark.parametrize("bits", [4, 7, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_numbers_stay_within_their_bits(function: object, bits: int, symmetric: bool) -> None:
    grids = Grids(bits, 32, symmetric)
    for rows in (ROWS, ROWS * 0, np.abs(ROWS) + 5, ROWS * np.float32(1e-38), ROWS[:, :50]):
        encoded = function(rows, grids)  # type: ignore[operator]
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if symmetric else (0, 2**bits - 1)
        assert encoded.numbers.min() >= low
        assert encoded.numbers.max() <= high
        assert np.isfinite(encoded.scales).all()
        assert (encoded.scales != 0).all()
        assert np.isfinite(encoded.weights()).all()


@pytest.mark.parametrize("symmetric", [True, False])
def test_half_quadratic_quantization_lowers_the_error_that_it_is_named_for(symmetric: bool) -> None:
    grids = Grids(4, 32, symmetric)
    ours, nearest = (
        (np.abs(function(ROWS, grids).weights() - ROWS) ** 0.7).sum()
        for function in (hqq.round_hqq, rtn.round_nearest)
    )
    assert ours < 0.993 * nearest


def test_a_row_of_zeros_stays_zeros() -> None:
    assert not rtn.round_nearest(np.zeros((3, 64), np.float32), Grids(4, 32, symmetric=True)).weights().any()


def test_weights_that_lie_on_a_grid_are_kept_exactly() -> None:
    numbers = RANDOM.integers(-8, 8, (5, 64))
    numbers[:, ::32] = -8
    rows = (numbers * 0.25).astype(np.float32)
    assert np.array_equal(rtn.round_nearest(rows, Grids(4, 32, symmetric=True)).weights(), rows)


def samples() -> list[np.ndarray]:
    return [RANDOM.standard_normal((rows, 24)).astype(np.float32) * 10.0**rows for rows in (1, 3, 2, 5, 4)]


def test_a_gram_matrix_is_that_of_all_samples() -> None:
    seen, whole = samples(), GramMatrix()
    for number, each in enumerate(seen):
        whole.observe(each, number)
    rows = np.concatenate(seen).astype(np.float64)
    assert np.allclose(whole.matrix(), rows.T @ rows, rtol=1e-5)
    assert whole.rows == len(rows)


def test_a_gram_matrix_has_the_same_bits_in_any_order_and_from_any_workers() -> None:
    seen, whole = samples(), GramMatrix()
    for number, each in enumerate(seen):
        whole.observe(each, number)
    parts = [GramMatrix(), GramMatrix(), GramMatrix()]
    for number in (4, 0, 2, 3, 1):
        parts[number % 2].observe(seen[number], number)
    merged = pickle.loads(pickle.dumps(parts[1]))
    merged.merge(parts[2])  # has seen nothing
    merged.merge(parts[0])
    assert np.array_equal(merged.matrix(), whole.matrix())


def test_a_gram_matrix_takes_the_axis_it_is_told() -> None:
    pictures = RANDOM.standard_normal((2, 5, 4, 3)).astype(np.float32)
    observer = GramMatrix(axis=1)
    observer.observe(pictures, 0)
    rows = np.moveaxis(pictures, 1, -1).reshape(-1, 5)
    assert np.allclose(observer.matrix(), rows.T @ rows, atol=1e-4)
