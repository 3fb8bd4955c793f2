"""Observers: what they keep is exact, and adding up is free of order."""

import pickle
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from onnxport.quantize.calibration.observers import (
    ChannelExtremes,
    ChannelMeans,
    Histogram,
    NotFiniteError,
)

# Any finite float32, subnormal ones included; sums of six stay finite, too.
FLOATS = st.floats(-(2.0**120), 2.0**120, width=32)
TENSORS = arrays.arrays(np.float32, st.sampled_from([(2, 3), (1, 3, 2), (2, 3, 1, 2)]), elements=FLOATS)
SAMPLES = st.lists(TENSORS, min_size=1, max_size=6)


def observed(kind, samples):
    observer = kind()
    for number, sample in enumerate(samples):
        observer.observe(sample, number)
    return observer


KINDS = [
    pytest.param(Histogram, id="histogram"),
    pytest.param(lambda: Histogram(3), id="histogram of a part"),
    pytest.param(lambda: Histogram(0), id="extremes"),
    pytest.param(lambda: ChannelMeans(1), id="means"),
    pytest.param(lambda: ChannelExtremes(1), id="extremes of channels"),
]


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_any_order_and_any_chunks_give_the_same_bits(kind, data):
    samples = data.draw(SAMPLES)
    order = data.draw(st.permutations(range(len(samples))))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(samples)), max_size=3)))
    whole = observed(kind, samples)
    shuffled = [samples[number] for number in order]
    bounds = [0, *cuts, len(samples)]
    chunks = [observed(kind, shuffled[a:b]) for a, b in pairwise(bounds)]
    merged = kind()
    for chunk in reversed(chunks):
        merged.merge(pickle.loads(pickle.dumps(chunk)))
    assert pickle.dumps(merged) == pickle.dumps(whole)


@given(SAMPLES)
def test_means_are_those_of_exact_arithmetic_on_the_sums(samples):
    means = observed(lambda: ChannelMeans(1), samples).means()
    for channel in range(3):
        sums = [np.moveaxis(sample, 1, 0)[channel].reshape(len(sample), -1) for sample in samples]
        exact = sum(
            Fraction(float(np.float32(each.sum(axis=1, dtype=np.float32).sum(dtype=np.float64))))
            for each in sums
        )
        assert means[channel] == float(exact / sum(each.size for each in sums))


@given(SAMPLES)
def test_extremes_of_channels_are_those_of_all_samples(samples):
    low, high = observed(lambda: ChannelExtremes(1), samples).extremes()
    for channel in range(3):
        values = [np.moveaxis(sample, 1, 0)[channel] for sample in samples]
        assert low[channel] == min(each.min() for each in values)
        assert high[channel] == max(each.max() for each in values)


@given(SAMPLES)
def test_a_histogram_holds_every_element_within_2_to_the_minus_8(samples):
    histogram = observed(Histogram, samples)
    values, counts = histogram.points()
    everything = np.sort(np.concatenate([sample.ravel() for sample in samples]).astype(np.float64))
    assert (histogram.low, histogram.high) == (everything[0], everything[-1])
    assert np.all(np.diff(values) >= 0)
    found = np.repeat(values, counts.astype(int))
    normal = 2.0**-126
    assert np.all(np.abs(found - everything) <= np.maximum(np.abs(everything) * 2.0**-8, normal))


def test_a_part_is_spread_over_all_channels_and_columns():
    """A stride that shared a factor with the width would see some columns alone."""
    columns = np.broadcast_to(np.arange(1, 113, dtype=np.float32), (1, 96, 112, 112))
    histogram = Histogram(8192)
    histogram.observe(columns, 0)
    values, counts = histogram.points()
    assert 8192 * 0.9 <= counts.sum() <= 8192
    assert len(values) == len(np.unique(np.arange(1, 113, dtype=np.float32).view(np.uint32) >> 16))
    assert counts.max() < 2 * counts.mean()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", [Histogram, lambda: Histogram(0), lambda: ChannelMeans(1)])
def test_what_is_not_finite_is_refused(kind, value):
    values = np.zeros((1, 3, 50, 50), np.float32)
    values[0, 2, 7, 11] = value
    with pytest.raises(NotFiniteError):
        kind().observe(values, 0)
