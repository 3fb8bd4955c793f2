"""Neighbours of a user's sample stay inside the domain that it shows, and differ from it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from onnxport.samples.domain import Domain
from onnxport.samples.neighbours import neighbour

REAL = Domain("real")


def moved(array: np.ndarray, domain: Domain = REAL, number: int = 0) -> np.ndarray:
    return neighbour({"x": array}, {"x": domain}, (), 0, number)["x"]


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize(
    "dtype", [np.float32, np.float16, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]
)
def test_floats_stay_within_the_sample_and_differ(dtype: type, number: int) -> None:
    sample = np.linspace(-0.5, 3.0, 24).reshape(4, 6).astype(dtype)
    found = moved(sample, number=number)
    assert found.dtype == sample.dtype
    assert found.shape == sample.shape
    assert found.astype(np.float32).min() >= -0.5
    assert found.astype(np.float32).max() <= 3.0
    assert not np.array_equal(found, sample)


@pytest.mark.parametrize("number", range(3))
def test_nan_and_infinity_are_replaced_by_values_of_the_sample(number: int) -> None:
    sample = np.array([1, np.nan, 2, np.inf, 4, -np.inf], np.float32)
    found = moved(sample, number=number)
    assert np.isfinite(found).all()
    assert found.min() >= 0
    assert found.max() <= 4


def test_integers_stay_within_the_sample() -> None:
    sample = np.array([[3, 9, 4], [5, 7, 9]], np.int64)
    found = moved(sample, Domain("integer", low=0, high=1000))
    assert found.dtype == np.int64
    assert set(found.ravel().tolist()) <= set(range(3, 10))
    assert not np.array_equal(found, sample)


def test_a_constant_integer_takes_the_range_of_its_domain() -> None:
    drawn = {
        int(moved(np.array(5, np.int64), Domain("integer", low=0, high=9), number)) for number in range(20)
    }
    assert len(drawn) > 3
    assert drawn <= set(range(10))


@pytest.mark.parametrize("kind", ["length", "position", "mask"])
def test_lengths_positions_and_masks_stay(kind: str) -> None:
    sample = np.arange(6)
    assert np.array_equal(moved(sample, Domain(kind)), sample)  # type: ignore[arg-type]


def test_a_length_is_shortened_now_and_then() -> None:
    """Samples of one full length do not show that an output follows it."""
    sample = np.array([16000, 1, 0], np.int64)
    found = [moved(sample, Domain("length"), number) for number in range(9)]
    assert all((each <= sample).all() and (each >= sample // 2).all() for each in found)
    assert len({int(each[0]) for each in found}) > 2
    assert {each.dtype for each in found} == {np.dtype(np.int64)}


def test_distinct_indices_and_settings_stay() -> None:
    sample = np.array([2, 0, 1], np.int64)
    assert np.array_equal(moved(sample, Domain("integer", structure="distinct")), sample)
    kept = neighbour({"axes": sample}, {"axes": Domain("integer", high=9)}, {"axes"}, 0, 1)
    assert np.array_equal(kept["axes"], sample)


def test_each_neighbour_differs_and_is_the_same_every_time() -> None:
    sample = np.linspace(0, 1, 50, dtype=np.float32)
    found = [moved(sample, number=number) for number in range(6)]
    assert len({each.tobytes() for each in found}) == 6
    assert all(np.array_equal(each, moved(sample, number=number)) for number, each in enumerate(found))


def test_a_boolean_flag_is_turned() -> None:
    assert not moved(np.array(True), Domain("boolean"))
