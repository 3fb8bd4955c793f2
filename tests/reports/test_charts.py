"""The charts of a run's page: their marks, which lie within the drawing."""

from __future__ import annotations

import math

from onnxport.reports.charts import WIDTH
from onnxport.reports.run import charts
from onnxport.validate.report import Histogram, LayerFigure, NodeRef

NODE = NodeRef(name="n", op="Conv", value="v")


def layer(sqnr: float | None, local_share: float = 0.1) -> LayerFigure:
    return LayerFigure(node=NODE, max_abs=1.0, scale=1.0, sqnr_db=sqnr, local_share=local_share)


def bars(*counts: int, allowed: float | None = None) -> charts.Chart | None:
    edges = tuple(float(edge) for edge in range(-len(counts), 1))
    return charts.histogram(Histogram(edges=edges, counts=counts, equal=3, allowed=allowed))


def test_empty_bins_have_no_bar_and_full_ones_lie_within_the_drawing() -> None:
    chart = bars(10, 0, 10_000, 1, allowed=-1.0)
    assert chart is not None
    assert len(chart.marks) == 3
    for mark in chart.marks:
        assert 0 < mark.x < mark.x + mark.width <= WIDTH
        assert 0 < mark.y < mark.y + mark.height <= charts.HEIGHT
    assert max(chart.marks, key=lambda mark: mark.height).title.startswith("10,000 elements")
    assert [mark.alarm for mark in chart.marks] == [False, False, True]


def test_limit_beyond_the_bins_stays_in_the_drawing() -> None:
    for allowed in (-300.0, 40.0):
        chart = bars(1, 2, allowed=allowed)
        assert chart is not None
        assert chart.limit is not None
        assert 0 < chart.limit < WIDTH


def test_a_bar_on_both_sides_of_the_tolerance_is_red_beyond_it() -> None:
    chart = bars(10, 20, 5, allowed=-2.5)
    assert chart is not None
    assert chart.limit is not None
    first = next(place for place, mark in enumerate(chart.marks) if mark.alarm)
    assert 0 < first < len(chart.marks)
    assert all(mark.x + mark.width <= chart.limit for mark in chart.marks[:first])
    assert all(mark.x >= chart.limit and mark.alarm for mark in chart.marks[first:])


def test_histogram_without_a_difference_is_not_drawn() -> None:
    assert bars(0, 0) is None
    assert charts.histogram(Histogram(edges=(), counts=(), equal=3, allowed=None)) is None


def test_higher_sqnr_lies_higher_and_infinity_on_top() -> None:
    chart = charts.layers([layer(math.inf), layer(120.0), layer(20.0), layer(None), layer(-3.0)])
    assert chart is not None
    heights = [mark.y for mark in chart.marks]
    assert heights[0] == heights[1] < heights[2] < heights[4] == heights[3]
    assert all(0 < mark.x < WIDTH and 0 < mark.y < charts.HEIGHT for mark in chart.marks)


def test_node_at_fault_is_drawn_among_many() -> None:
    found = [layer(50.0, local_share=9.0 if number == 4321 else 0.1) for number in range(6000)]
    chart = charts.layers(found)
    assert chart is not None
    assert len(chart.marks) <= 2001
    assert [mark.alarm for mark in chart.marks].count(True) == 1


def test_layers_without_any_error_are_not_drawn() -> None:
    assert charts.layers([layer(math.inf), layer(None)]) is None
    assert charts.layers([]) is None
