"""Rows of an activation: true to the samples, bounded in number, and the same whatever the order."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from onnxport.quantize.accuracy.rows import (
    ELEMENTS,
    RowSample,
    from_upper_half,
    round_to_upper_half,
    rows_per_sample,
)

MOST = 255 * 2.0**120  # of 8 bits, in float32
FLOATS = st.floats(-(2.0**120), 2.0**120, width=32)
TENSORS = arrays.arrays(
    np.float32, st.sampled_from([(1, 3, 7, 5), (1, 3, 2, 2), (2, 3, 9, 1)]), elements=FLOATS
)


def seen(samples, axis=1, among=40):
    sample = RowSample(axis, among)
    for number, values in enumerate(samples):
        sample.observe(values, number)
    return sample


@settings(max_examples=30)
@given(data=st.data())
def test_any_order_and_any_chunks_give_the_same_rows(data):
    samples = data.draw(st.lists(TENSORS, min_size=2, max_size=5))
    order = data.draw(st.permutations(range(len(samples))))
    cut = data.draw(st.integers(0, len(samples)))
    shuffled = [samples[number] for number in order]
    merged = seen(shuffled[cut:])
    merged.merge(pickle.loads(pickle.dumps(seen(shuffled[:cut]))))
    assert merged.rows().tobytes() == seen(samples).rows().tobytes()
    assert pickle.dumps(merged) == pickle.dumps(seen(samples))


@pytest.mark.parametrize(("axis", "shape"), [(1, (1, 6, 40, 50)), (-1, (1, 2000, 6))])
def test_a_row_is_what_the_channels_hold_at_one_place(axis, shape):
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    rows = seen([values], axis).rows()
    places = np.moveaxis(values, axis, -1).reshape(-1, 6)
    assert rows_per_sample(40, 6) <= len(rows) <= 2 * rows_per_sample(40, 6)
    nearest = np.abs(places[None] - rows[:, None]).max(axis=2).argmin(axis=1)
    np.testing.assert_allclose(rows, places[nearest], rtol=2.0**-8)
    assert len(set(nearest.tolist())) == len(rows)


def test_memory_does_not_grow_with_the_number_of_samples():
    few, many = (samples * rows_per_sample(samples, 960) * 960 for samples in (16, 256))
    assert many <= 1.05 * few <= 1.05 * ELEMENTS


def test_rows_of_all_samples_share_a_block_of_memory_and_other_sizes_get_another():
    """Blocks return to the system as a whole; of many small arrays between others' only holes would."""
    sample, rng = RowSample(1, 40), np.random.default_rng(0)
    given = [
        rng.normal(size=(1, 6, places)).astype(np.float32) for places in (900, 901, 20, 40_000, 900, 899)
    ]
    for number, values in enumerate(given):
        sample.observe(values, number)
    alone = RowSample(1, 40)
    for number, values in enumerate(given):
        single = RowSample(1, 40)
        single.observe(values, number)
        alone.merge(single)
    assert alone.rows().tobytes() == sample.rows().tobytes()
    blocks = {id(kept.base) for kept in sample._kept}
    assert len(blocks) <= 2 < len(given)


def test_the_largest_numbers_stay_finite():
    largest = np.full((1, 4), np.finfo(np.float32).max)
    assert np.isfinite(seen([largest, -largest]).rows()).all()


@given(numbers=st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=9))
def test_halves_are_the_nearest_with_eight_bits(numbers):
    """Of a number half way between two, the one of greater magnitude; the greatest one for all beyond it."""
    values = np.array(numbers, np.float32)
    exact = np.clip(values.astype(np.float64), -MOST, MOST)
    mantissa, exponent = np.frexp(np.abs(exact))
    bits = np.minimum(8, exponent + 133)  # what lies below the normal range has fewer
    rounded = np.ldexp(np.floor(np.ldexp(mantissa, bits) + 0.5), exponent - bits)
    expected = np.copysign(np.minimum(rounded, MOST), values)
    found = from_upper_half(round_to_upper_half(values))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(values))


def test_samples_of_different_channels_have_no_rows():
    assert not seen([np.ones((1, 3, 4), np.float32), np.ones((1, 5, 4), np.float32)]).rows().size
