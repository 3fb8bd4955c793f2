"""Size against latency against accuracy: who beats whom, where marks lie, and that labels find room."""

from __future__ import annotations

import math
from typing import Any

import pytest

from onnxport.reports.charts import WIDTHS
from onnxport.reports.tradeoff import Choice, Plot, plots, standing


def choice(number: int, ms: float, size: int, sqnr: float | None = None, **changes: Any) -> Choice:
    fields: dict[str, Any] = {"artifact": f"m{number}", "name": f"model {number}", "says": f"no. {number}"}
    return Choice(number=number, ms=ms, size=size, sqnr=sqnr, **fields | changes)


def drawn(*found: Choice) -> list[Plot]:
    made = plots(found)
    assert list(made) == list(WIDTHS)
    return list(made.values())


def test_nothing_is_drawn_of_nothing() -> None:
    assert plots([]) == {}


def test_what_is_larger_and_slower_is_worth_it_for_its_accuracy_alone() -> None:
    best = choice(1, 4.0, 3_000, 25.0)
    accurate, worse = choice(2, 9.0, 12_000, math.inf), choice(3, 9.0, 12_000, 25.0)
    unasked, small = choice(4, 9.0, 12_000), choice(5, 20.0, 2_000, 10.0)
    found = [best, accurate, worse, unasked, small]
    assert [standing(each, found) for each in found] == ["front", "worth", "beaten", "worth", "front"]


def test_beyond_60_db_nobody_chooses_by_accuracy() -> None:
    found = [choice(1, 4.0, 3_000, 61.0), choice(2, 9.0, 12_000, 130.0)]
    assert standing(found[1], found) == "beaten"


def test_where_nobody_asked_for_accuracy_size_and_latency_decide() -> None:
    found = [choice(1, 4.0, 3_000), choice(2, 9.0, 12_000)]
    assert standing(found[1], found) == "beaten"


def test_of_the_same_size_noise_alone_beats_nobody() -> None:
    near = [choice(1, 4.0, 3_000, low=3.8, high=4.3), choice(2, 4.1, 3_000, low=3.9, high=4.4)]
    far = [near[0], choice(2, 5.1, 3_000, low=4.9, high=5.4)]
    assert [standing(each, near) for each in near] == ["front", "front"]
    assert [standing(each, far) for each in far] == ["front", "beaten"]


def test_faster_lies_left_and_smaller_below_and_accuracy_closes_the_ring() -> None:
    for plot in drawn(choice(1, 1.0, 1_000, 15.0), choice(2, 30.0, 80_000, math.inf), choice(3, 6.0, 9_000)):
        fast, slow, middle = plot.spots
        assert plot.left < fast.x < middle.x < slow.x < plot.width
        assert 0 < slow.y < middle.y < fast.y < plot.floor
        assert [spot.ring for spot in plot.spots] == [25.0, 100.0, None]


def test_marks_lie_between_the_ticks_that_they_lie_between() -> None:
    for plot in drawn(choice(1, 2.1, 3_600), choice(2, 12.4, 14_000)):
        places = {float(tick.label.split()[0]): tick.at for tick in plot.x_ticks}
        for spot, ms in zip(plot.spots, (2.1, 12.4), strict=True):
            assert all((at < spot.x) == (figure < ms) for figure, at in places.items())
        assert places


def test_front_steps_from_the_fastest_down_to_the_smallest() -> None:
    for plot in drawn(
        choice(1, 1.0, 9_000), choice(2, 5.0, 5_000), choice(3, 9.0, 1_000), choice(4, 9.0, 9_000)
    ):
        corners = [tuple(map(float, corner.split(","))) for corner in plot.front.split()]
        for spot in plot.spots[:3]:
            assert (spot.x, spot.y) in corners
        assert (plot.spots[3].x, plot.spots[3].y) not in corners
        assert corners == sorted(corners)
        assert [y for _, y in corners] == sorted(y for _, y in corners)


def test_settings_of_one_artefact_share_the_label_of_the_fastest() -> None:
    settings = [choice(number, float(number), 5_000, artifact="m", name="m") for number in (3, 2, 1)]
    for plot in drawn(*settings):
        assert [label.text for label in plot.labels] == ["m"]
        assert [spot.reach > 5 for spot in plot.spots] == [False, False, True]


@pytest.mark.parametrize("sqnr", [math.nan, -math.inf, math.inf])
def test_figures_that_are_no_numbers_are_drawn(sqnr: float) -> None:
    for plot in drawn(choice(1, 1.0, 0, sqnr)):
        assert all(math.isfinite(each) for spot in plot.spots for each in (spot.x, spot.y))
        assert plot.spots[0].ring == (100.0 if sqnr > 0 else 0.0)


def test_forty_marks_have_numbers_and_no_two_of_them_touch() -> None:
    many = [
        choice(number, 2 + number * 37 % 40, 1000 + number**2 * 90, name=f"a model of a long name, {number}")
        for number in range(1, 41)
    ]
    for plot in drawn(*many):
        assert plot.numbered
        boxes = [(label.x, label.y, label.anchor, 5.6 * len(label.text)) for label in plot.labels]
        spans = [
            (x - {"start": 0, "middle": wide / 2, "end": wide}[how], y, wide) for x, y, how, wide in boxes
        ]
        for at, (left, y, wide) in enumerate(spans):
            assert left >= plot.left
            for other, height, width in spans[at + 1 :]:
                assert left + wide <= other or other + width <= left or abs(y - height) >= 9
