"""The interval of a median has the confidence of the binomial distribution; a quantile is an observation."""

from __future__ import annotations

from itertools import product

import pytest

from onnxport.bench.statistics import median_interval, quantile


@pytest.mark.parametrize("count", [6, 9, 12])
def test_the_interval_holds_the_median_as_often_as_it_says(count: int) -> None:
    """Of all ways in which observations can fall below and above the true median, which are equally likely."""
    held = total = 0
    for sides in product((-1.0, 1.0), repeat=count):
        observed = [side * (1 + number) for number, side in enumerate(sides)]
        found = median_interval(observed)
        held, total = held + (found.low <= 0 <= found.high), total + 1
    assert found.confidence == pytest.approx(held / total)
    assert found.confidence >= 0.95


def test_too_few_observations_give_the_widest_interval_and_say_what_it_is_worth() -> None:
    assert median_interval([3.0]).confidence == 0
    found = median_interval([3.0, 1.0, 2.0])
    assert (found.low, found.high, found.confidence) == (1.0, 3.0, 0.75)


def test_a_quantile_is_the_least_observation_that_so_many_do_not_exceed() -> None:
    observed = [float(each) for each in range(1, 101)]
    assert [quantile(observed, share) for share in (0.5, 0.9, 0.99, 1.0)] == [50, 90, 99, 100]
    assert quantile([7.0], 0.99) == 7
