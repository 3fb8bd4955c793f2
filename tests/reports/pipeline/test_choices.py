"""Which cells of a pipeline are drawn as size against latency against accuracy, and where their figures come from."""

from __future__ import annotations

import math

import pytest

from onnxport.reports.pipeline import html as view
from onnxport.reports.pipeline import matrix
from onnxport.reports.pipeline.choices import choices
from onnxport.reports.pipeline_report import PipelineReport
from onnxport.reports.run_report import Worth
from tests.reports.handmade import latency, passing
from tests.reports.pipeline.handmade import cell, crowd, mixed, node, report, sized


def timed(*before_and_speedup: tuple[float, float]) -> PipelineReport:
    """Cells of one model, each beside the model in turns of its own."""
    nodes = []
    for count, (before, speedup) in enumerate(before_and_speedup):
        run = sized(passing(), 1_000_000 * (count + 1), 30.0)
        times = latency(before_ms=before, speedup=speedup, low=speedup * 0.9, high=speedup * 1.1)
        made = run.artifacts[0].model_copy(update={"worth": Worth(latency=times)})
        nodes.append(node(f"net/t{count}", run.model_copy(update={"artifacts": (made,)})))
    return report(nodes, [cell(each) for each in nodes])


def test_cells_are_told_by_their_share_of_one_time_of_the_model() -> None:
    source, fast, slow = choices(matrix.rows(timed((10.0, 2.0), (30.0, 0.5))))
    assert (source.ms, source.sqnr, source.name, source.origin) == (20.0, math.inf, "net", True)
    assert source.size == passing().artifacts[0].report.reference.size
    assert (fast.ms, slow.ms) == (10.0, 40.0)
    assert (fast.low, fast.high) == pytest.approx((20 / 2.2, 20 / 1.8))
    assert (fast.size, slow.size, fast.sqnr) == (1_000_000, 2_000_000, 30.0)


def test_a_time_that_a_limit_asked_for_is_drawn_too() -> None:
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
