"""Where the marks of size against accuracy lie, and that their labels find room."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from onnxport.reports.charts import WIDTHS
from onnxport.reports.pipeline import matrix
from onnxport.reports.pipeline.plot import Label, Plot, plot
from onnxport.reports.pipeline_report import PipelineReport
from tests.reports.handmade import passing
from tests.reports.pipeline.handmade import cell, crowd, endless, lone, lost, node, report, sized


def plots(run: PipelineReport) -> Iterator[Plot]:
    for page in WIDTHS:
        found = plot(matrix.rows(run), page)
        assert found is not None
        yield found


def of(*figures: tuple[int, float]) -> PipelineReport:
    nodes = [node(f"m/t{count}", sized(passing(), *each)) for count, each in enumerate(figures)]
    return report(nodes, [cell(each) for each in nodes])


def extent(label: Label) -> tuple[float, float]:
    """Left and right end, as a browser's sans-serif draws it at 10 units."""
    wide = 5.6 * len(label.text)
    left = {"start": label.x, "middle": label.x - wide / 2, "end": label.x - wide}[label.anchor]
    return left, left + wide


@pytest.mark.parametrize("run", [lone(), endless(), crowd(), of(*[(10**6, 40.0)] * 7)], ids=str)
def test_labels_lie_inside_and_off_each_other_and_off_the_marks(run: PipelineReport) -> None:
    for found in plots(run):
        assert found.labels
        boxes = [(*extent(label), label.y) for label in found.labels]
        for number, (left, right, y) in enumerate(boxes):
            assert left >= 0
            assert right <= found.width
            assert 0 < y < found.floor
            for other_left, other_right, other_y in boxes[number + 1 :]:
                assert right <= other_left or other_right <= left or abs(y - other_y) >= 9
            for spot in found.spots:
                assert not (left < spot.x < right and y - 8 < spot.y < y)


def test_every_mark_is_within_the_axes_and_larger_and_better_go_right_and_up() -> None:
    for found in plots(of((1_000_000, 20.0), (2_000_000, 30.0), (90_000_000, 80.0))):
        xs, ys = [spot.x for spot in found.spots], [spot.y for spot in found.spots]
        assert xs == sorted(xs)
        assert ys == sorted(ys, reverse=True)
        assert min(xs) > 46
        assert max(xs) < found.width
        assert max(ys) < found.floor


def test_sizes_far_apart_are_drawn_by_their_logarithm() -> None:
    for found in plots(of((10_000, 20.0), (1_000_000, 30.0), (100_000_000, 40.0))):
        first, middle, last = (spot.x for spot in found.spots)
        assert middle - first == pytest.approx(last - middle, abs=0.2)


def test_what_has_no_error_or_no_number_has_a_line_of_its_own() -> None:
    for found in plots(endless()):
        heights = {tick.label: tick.at for tick in found.y_ticks}
        broken, exact, fine = (spot.y for spot in found.spots)
        assert exact == heights["exact"] < fine < broken == heights["NaN, ∞"]


@pytest.mark.parametrize("sqnr", [math.inf, -math.inf, math.nan])
def test_plot_without_any_finite_figure_is_drawn(sqnr: float) -> None:
    for found in plots(of((1000, sqnr), (1000, sqnr))):
        assert all(math.isfinite(each) for spot in found.spots for each in (spot.x, spot.y))


def test_names_stand_where_they_fit_and_numbers_elsewhere() -> None:
    assert [label.text for found in plots(lone()) for label in found.labels] == ["digits/phone"] * 2
    for found in plots(crowd()):
        assert found.numbered
        assert {"40"} <= {label.text for label in found.labels}


def test_marks_on_top_of_each_other_share_a_label() -> None:
    _, wide = plots(of((1000, 40.0), (1000, 40.0), (9000, 90.0)))
    assert [label.text for label in wide.labels] == ["m/t0, m/t1", "m/t2"]


def test_cells_without_figures_are_counted() -> None:
    for found in plots(lost()):
        assert (len(found.spots), found.left_out) == (2, 1)
        assert all(spot.alarm for spot in found.spots)
