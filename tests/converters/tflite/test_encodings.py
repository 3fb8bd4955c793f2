"""Weights in fewer bits: the nearest numbers, or exactly those that the source stores."""

from __future__ import annotations

import numpy as np
import pytest

from onnxport.converters.tflite.storage.encodings import (
    Encoded,
    encode_float16,
    encode_float16_exactly,
    encode_integers,
    recover_integers,
)
from onnxport.core.arrays import Array

RANDOM = np.random.default_rng(0)
WEIGHTS = RANDOM.standard_normal((6, 5, 40)).astype(np.float32) * np.float32(
    [[[1e-3]], [[2]], [[40]]]
).repeat(2, 0)


def floats(encoded: Encoded) -> Array:
    """Return what DEQUANTIZE makes of the numbers."""
    shape = [-1 if axis == encoded.axis else 1 for axis in range(encoded.numbers.ndim)]
    steps = encoded.numbers.astype(np.int64) - encoded.zero_points.reshape(shape)
    return np.asarray(steps.astype(np.float32) * encoded.scales.reshape(shape))


def require(encoded: Encoded | None) -> Encoded:
    assert encoded is not None
    return encoded


@pytest.mark.parametrize("axis", [0, 1, 2, None])
def test_integers_are_the_nearest_ones_of_every_channel(axis: int | None) -> None:
    encoded = require(encode_integers(WEIGHTS, 8, axis))
    others = tuple(other for other in range(3) if other != axis)
    largest = np.abs(WEIGHTS).max(axis=None if axis is None else others, keepdims=True)
    assert (np.abs(floats(encoded) - WEIGHTS) <= largest / 127 * 0.5001).all()
    assert np.abs(encoded.numbers).max() == 127


def test_integers_are_rounded_half_to_even() -> None:
    encoded = require(encode_integers(np.float32([[127, 0.5, 1.5, -2.5, 126.5]]), 8, 0))
    assert encoded.numbers.tolist() == [[127, 0, 2, -2, 126]]


def test_four_bits_cut_off_outliers_where_that_is_nearer_on_the_whole() -> None:
    rows = RANDOM.standard_normal((3, 2000)).astype(np.float32)
    encoded = require(encode_integers(rows, 4, 0))
    reaching = np.abs(rows).max(axis=1, keepdims=True) / 7
    plain = np.clip(np.rint(rows / reaching), -7, 7) * reaching
    assert np.square(floats(encoded) - rows).sum() < 0.75 * np.square(plain - rows).sum()
    assert np.abs(encoded.numbers).max() == 7


@pytest.mark.parametrize("bits", [8, 4])
def test_rows_of_zeros_and_of_tiny_numbers_are_held(bits: int) -> None:
    rows = np.float32([[0, 0, 0], [1e-44, -2e-45, 0], [3, 1, -2]])
    encoded = require(encode_integers(rows, bits, 0))
    assert np.isfinite(encoded.scales).all()
    assert (encoded.scales > 0).all()
    assert np.abs(floats(encoded) - rows).max() <= 3 / (2 ** (bits - 1) - 1)


@pytest.mark.parametrize(
    "encode", [lambda w: encode_integers(w, 8, 0), encode_float16, lambda w: recover_integers(w, 8, 0)]
)
def test_what_is_not_finite_is_not_encoded(encode: object) -> None:
    assert callable(encode)
    assert encode(np.float32([[1, np.inf], [2, 3]])) is None or encode is encode_float16
    assert encode(np.float32([[1, 1e38], [2, 3]])) is None or encode is not encode_float16


@pytest.mark.parametrize(
    ("bits", "low", "high", "zero_point"),
    [(8, -127, 127, 0), (8, -128, 127, 0), (8, 0, 255, 131), (8, 3, 9, 0), (4, -8, 7, 0), (4, 0, 15, 9)],
)
@pytest.mark.parametrize("axis", [0, 1, None])
def test_stored_integers_are_found_again_to_the_last_bit(
    bits: int, low: int, high: int, zero_point: int, axis: int | None
) -> None:
    numbers = RANDOM.integers(low, high + 1, (12, 200))
    count = 1 if axis is None else numbers.shape[axis]
    scales = RANDOM.uniform(1e-4, 1e-2, count).astype(np.float32)
    along = scales if axis in (1, None) else scales[:, None]
    weights = (numbers - zero_point).astype(np.float32) * along
    encoded = require(recover_integers(weights, bits, axis))
    assert np.array_equal(floats(encoded), weights)
    assert encoded.numbers.min() >= -(2 ** (bits - 1))
    assert encoded.numbers.max() < 2 ** (bits - 1)


def test_stored_integers_are_found_again_behind_a_factor_for_each_channel() -> None:
    scales = RANDOM.uniform(1e-4, 1e-2, (8, 1)).astype(np.float32)
    factors = RANDOM.standard_normal((8, 1)).astype(np.float32)  # of a normalization behind the product
    weights = RANDOM.integers(-127, 128, (8, 100)).astype(np.float32) * (scales * factors)
    assert np.array_equal(floats(require(recover_integers(weights, 8, 0))), weights)


def test_ordinary_floats_are_no_stored_integers() -> None:
    assert recover_integers(RANDOM.standard_normal((4, 300)).astype(np.float32), 8, 0) is None
    assert encode_float16_exactly(RANDOM.standard_normal((4, 300)).astype(np.float32)) is None


def test_stored_halves_are_found_again() -> None:
    weights = RANDOM.standard_normal((4, 300)).astype(np.float16).astype(np.float32)
    assert np.array_equal(require(encode_float16_exactly(weights)).numbers, weights)
