"""Size against latency against accuracy: which choice dominates which, and where marks lie."""

from __future__ import annotations

import math
from typing import Any

import pytest

from onnxport.reports.charts import FLOOR, LEFT, RIGHT, Scatter
from onnxport.reports.tradeoff import Choice, draw, standing


def choice(number: int, ms: float, size: int, sqnr: float | None = None, **changes: Any) -> Choice:
    fields: dict[str, Any] = {"artifact": f"m{number}", "name": f"model {number}", "title": f"no. {number}"}
    return Choice(number=number, ms=ms, size=size, sqnr=sqnr, **fields | changes)


def drawn(*found: Choice) -> Scatter:
    chart = draw(found, "time")
    assert chart is not None
    return chart


def test_nothing_is_drawn_of_nothing() -> None:
    assert draw([], "time") is None


def test_artefacts_of_one_size_are_not_drawn() -> None:
    """All marks would lie on one line: the bars of times and the table say the same."""
    assert draw([choice(1, 4.0, 3_000), choice(2, 9.0, 3_001), choice(3, 5.0, 3_000)], "time") is None


def test_larger_and_slower_pays_for_accuracy_alone() -> None:
    best = choice(1, 4.0, 3_000, 25.0)
    accurate, worse = choice(2, 9.0, 12_000, math.inf), choice(3, 9.0, 12_000, 25.0)
    unknown, small = choice(4, 9.0, 12_000), choice(5, 20.0, 2_000, 10.0)
    found = [best, accurate, worse, unknown, small]
    assert [standing(each, found) for each in found] == [
        "front",
        "accurate",
        "dominated",
        "accurate",
        "front",
    ]


def test_beyond_60_db_accuracy_decides_nothing() -> None:
    found = [choice(1, 4.0, 3_000, 61.0), choice(2, 9.0, 12_000, 130.0)]
    assert standing(found[1], found) == "dominated"


def test_without_accuracy_size_and_latency_decide() -> None:
    found = [choice(1, 4.0, 3_000), choice(2, 9.0, 12_000)]
    assert standing(found[1], found) == "dominated"


def test_at_equal_size_noise_alone_dominates_nothing() -> None:
    near = [choice(1, 4.0, 3_000, low=3.8, high=4.3), choice(2, 4.1, 3_000, low=3.9, high=4.4)]
    far = [near[0], choice(2, 5.1, 3_000, low=4.9, high=5.4)]
    assert [standing(each, near) for each in near] == ["front", "front"]
    assert [standing(each, far) for each in far] == ["front", "dominated"]


def test_faster_lies_left_and_smaller_below_and_accuracy_closes_the_ring() -> None:
    chart = drawn(choice(1, 1.0, 1_000, 15.0), choice(2, 30.0, 80_000, math.inf), choice(3, 6.0, 9_000))
    fast, slow, middle = chart.spots
    assert LEFT < fast.x < middle.x < slow.x < RIGHT
    assert 0 < slow.y < middle.y < fast.y < FLOOR
    assert [spot.ring for spot in chart.spots] == [25.0, 100.0, None]


def test_ticks_are_the_ends_and_the_middle_of_the_figures() -> None:
    chart = drawn(choice(1, 2.0, 4_000), choice(2, 18.0, 16_000))
    assert [tick.label for tick in chart.x_ticks] == ["2.00 ms", "6.00 ms", "18.0 ms"]
    assert [spot.x for spot in chart.spots] == [chart.x_ticks[0].at, chart.x_ticks[-1].at]
    assert [tick.label for tick in drawn(choice(1, 2.0, 4_000)).y_ticks] == ["4.0 kB"]


def test_line_joins_the_front_from_the_fastest_to_the_smallest() -> None:
    chart = drawn(choice(1, 1.0, 9_000), choice(2, 5.0, 5_000), choice(3, 9.0, 1_000), choice(4, 9.0, 9_000))
    assert chart.line == " ".join(f"{spot.x},{spot.y}" for spot in chart.spots[:3])
    assert [spot.faint for spot in chart.spots] == [False, False, False, True]


def test_of_the_settings_of_one_artefact_the_fastest_has_the_name() -> None:
    settings = [choice(number, float(number), 5_000, artifact="m", name="m") for number in (3, 2, 1)]
    assert [spot.name for spot in drawn(*settings).spots] == ["", "", "m"]
    assert drawn(*settings).key == [(1, "m")]


@pytest.mark.parametrize("sqnr", [math.nan, -math.inf, math.inf])
def test_figures_that_are_no_numbers_are_drawn(sqnr: float) -> None:
    (spot,) = drawn(choice(1, 1.0, 0, sqnr)).spots
    assert math.isfinite(spot.x)
    assert math.isfinite(spot.y)
    assert spot.ring == (100.0 if sqnr > 0 else 0.0)


def test_key_names_every_number() -> None:
    many = [choice(number, 2 + number * 37 % 40, 1000 + number**2 * 90) for number in range(1, 41)]
    assert drawn(*many).key == [(number, f"model {number}") for number in range(1, 41)]
