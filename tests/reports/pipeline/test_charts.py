"""The charts of a pipeline: which cells they draw, and where the figures and marks come from."""

from __future__ import annotations

import math

import pytest

from onnxport.reports.charts import FLOOR, LEFT, RIGHT, Scatter
from onnxport.reports.pipeline import html as view
from onnxport.reports.pipeline import matrix
from onnxport.reports.pipeline.charts import choices, size_against_accuracy
from onnxport.reports.pipeline_report import PipelineReport
from onnxport.reports.run_report import Worth
from tests.reports.handmade import latency, passing
from tests.reports.pipeline.handmade import cell, crowd, endless, lost, mixed, node, report, sized


def timed(*before_and_speedup: tuple[float, float]) -> PipelineReport:
    """Cells of one model, each beside the model in turns of its own."""
    nodes = []
    for count, (before, speedup) in enumerate(before_and_speedup):
        run = sized(passing(), 1_000_000 * (count + 1), 30.0)
        times = latency(before_ms=before, speedup=speedup, low=speedup * 0.9, high=speedup * 1.1)
        made = run.artifacts[0].model_copy(update={"worth": Worth(latency=times)})
        nodes.append(node(f"net/t{count}", run.model_copy(update={"artifacts": (made,)})))
    return report(nodes, [cell(each) for each in nodes])


def test_times_of_cells_are_relative_to_one_time_of_the_model() -> None:
    source, fast, slow = choices(matrix.rows(timed((10.0, 2.0), (30.0, 0.5))))
    assert (source.ms, source.sqnr, source.name) == (20.0, math.inf, "net")
    assert source.size == passing().artifacts[0].report.reference.size
    assert (fast.ms, slow.ms) == (10.0, 40.0)
    assert (fast.low, fast.high) == pytest.approx((20 / 2.2, 20 / 1.8))
    assert (fast.size, slow.size, fast.sqnr) == (1_000_000, 2_000_000, 30.0)


def test_a_time_measured_for_a_limit_is_drawn_too() -> None:
    made = node("net/plain", passing())
    run = report([made], [cell(made, latency=latency(before_ms=8.0, speedup=0.8))])
    _, only = choices(matrix.rows(run))
    assert only.ms == pytest.approx(10.0)
    assert "Size against latency against accuracy" in view.view(run)


def test_what_was_not_delivered_is_marked() -> None:
    run = timed((10.0, 2.0))
    held_back = run.model_copy(update={"cells": (run.cells[0].model_copy(update={"path": None}),)})
    assert [each.alarm for each in choices(matrix.rows(held_back))] == [False, True]


def test_without_times_there_is_no_such_drawing() -> None:
    assert choices(matrix.rows(crowd())) == []
    assert "Size against latency" not in view.view(crowd())
    assert "Size against latency" in view.view(mixed())


def test_cells_that_were_not_timed_are_counted() -> None:
    run, plain = timed((10.0, 2.0)), node("net/plain", passing())
    both = run.model_copy(update={"nodes": (*run.nodes, plain), "cells": (*run.cells, cell(plain))})
    assert "1 artefact was not timed." in view.view(both)
    assert "not timed" not in view.view(run)


def plot(run: PipelineReport) -> Scatter:
    found = size_against_accuracy(matrix.rows(run))
    assert found is not None
    return found


def of(*figures: tuple[int, float]) -> PipelineReport:
    nodes = [node(f"m/t{count}", sized(passing(), *each)) for count, each in enumerate(figures)]
    return report(nodes, [cell(each) for each in nodes])


def test_every_mark_is_within_the_axes_and_larger_and_better_go_right_and_up() -> None:
    spots = plot(of((1_000_000, 20.0), (2_000_000, 30.0), (90_000_000, 80.0))).spots
    xs, ys = [spot.x for spot in spots], [spot.y for spot in spots]
    assert xs == sorted(xs)
    assert ys == sorted(ys, reverse=True)
    assert min(xs) > LEFT
    assert max(xs) < RIGHT
    assert max(ys) < FLOOR


def test_sizes_are_drawn_by_their_logarithm() -> None:
    first, middle, last = (
        spot.x for spot in plot(of((10_000, 20.0), (1_000_000, 30.0), (100_000_000, 40.0))).spots
    )
    assert middle - first == pytest.approx(last - middle, abs=0.2)


def test_exact_and_broken_outputs_have_lines_of_their_own() -> None:
    found = plot(endless())
    heights = {tick.label: tick.at for tick in found.y_ticks}
    broken, exact, fine = (spot.y for spot in found.spots)
    assert exact == heights["exact"] < fine < broken == heights["NaN, ∞"]


@pytest.mark.parametrize("sqnr", [math.inf, -math.inf, math.nan])
def test_plot_without_any_finite_figure_is_drawn(sqnr: float) -> None:
    spots = plot(of((1000, sqnr), (1000, sqnr))).spots
    assert all(math.isfinite(each) for spot in spots for each in (spot.x, spot.y))


def test_every_cell_with_figures_has_a_number_and_a_name() -> None:
    rows = matrix.rows(crowd())
    assert plot(crowd()).key == [(row.number, row.cell.name) for row in rows]


def test_cells_without_figures_are_left_out_and_undelivered_ones_marked() -> None:
    found = plot(lost())
    assert len(found.spots) == 2
    assert all(spot.alarm for spot in found.spots)
    assert "1 artefact without figures is not drawn" in view.view(lost())
