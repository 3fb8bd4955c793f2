"""The HTML report of a pipeline in headless Chromium, at the widths of a phone and a desktop."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from onnxport.reports.pipeline import html as view
from onnxport.reports.pipeline_report import PipelineReport
from tests.reports import chromium
from tests.reports.handmade import NASTY
from tests.reports.pages import Page
from tests.reports.pipeline.handmade import RUNS, cached, crowd, endless, hostile, lone, lost, mixed

PHONE, DESKTOP = 400, 1400


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Site]:
    folder = tmp_path_factory.mktemp("pipelines")
    for name, make in RUNS.items():
        (folder / f"{name}.html").write_text(view.view(make()), encoding="utf-8")
    with chromium.serving(folder) as served:
        yield served


def seen(run: PipelineReport) -> Page:
    return Page(view.view(run))


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_pages_fit_complain_of_nothing_and_ask_for_nothing(site: chromium.Site, width: int) -> None:
    visit = chromium.probe(site, list(RUNS), width)
    assert visit.console == []
    assert sorted(site.asked) == sorted(["/probe.html", *(f"/{page}.html" for page in RUNS)])
    assert chromium.measured(visit) == {page: {"scroll": width, "shown": width, "wide": []} for page in RUNS}


def test_page_of_a_mixed_run_says_what_became_of_everything() -> None:
    page = seen(mixed())
    for said in (
        "ci/pipeline.yaml: 3 of 6 artefacts delivered",
        "6 artefacts, 2 proven, 1 unproven, 1 not run, 1 over budget, 1 failed; 3 made, 1 from the cache; 12.3 s",
        "digits/int8 is not equivalent to model.onnx: 'scores': difference 0.2",
        "Conv '/stem/conv1/Conv'",
        "ci/pipeline.yaml:6",
        "Loop         'decode'      carries a sequence",
        "4.7 MB (0.99x)",
        "SQNR 27.1 dB",
        "2.9x faster (2.7-3.1)",
        "18 % too much",
        "from the cache",
        "ab" * 32,
        "onnxport run ci/pipeline.yaml --report 'out dir'",
        "Is it worth it?",
        "set 1 (image)",
    ):
        assert said in page.text
    assert page.tags.count("meter") >= 8
    # The artefact over its limit is a diamond.
    assert view.view(mixed()).count("rotate(45") == 1


def test_head_says_the_worst_also_of_a_stage_that_others_wait_for() -> None:
    run = mixed()
    waiting = run.model_copy(update={"nodes": run.nodes[:4], "cells": run.cells[:2]})
    head = view.view(waiting).partition("</header>")[0]
    assert re.findall('class="chip ([a-z]+)">(.*?)</span>', head) == [("bad", "✗ not equivalent")]


def test_every_link_leads_somewhere(site: chromium.Site) -> None:
    for name in RUNS:
        page = Page((site.folder / f"{name}.html").read_text(encoding="utf-8"))
        assert page.links <= page.places
        assert page.links


def test_each_stage_has_the_judges_page() -> None:
    page = seen(mixed())
    assert page.text.count("Fidelity") == 5  # of eight stages one failed, one was not run, one was not judged
    assert "Where they begin to differ" in page.text


def test_no_plot_and_no_figures_where_there_are_none() -> None:
    page = seen(lost())
    assert "0 of 3 artefacts delivered" in page.text
    run = lost()
    only = run.model_copy(update={"nodes": run.nodes[2:], "cells": run.cells[2:]})
    assert "Size against accuracy" not in seen(only).text


def test_one_cell_has_a_plot_with_its_name() -> None:
    source = view.view(lone())
    assert source.count('class="number-of"') == 1
    assert "<li><b>1</b> digits/phone</li>" in source


def test_run_from_the_cache_says_so_of_each_bar() -> None:
    assert view.view(cached()).count('class="idle"') == 3


def test_figures_that_are_no_numbers_are_shown() -> None:
    page = seen(endless())
    for said in ("SQNR ∞ dB", "SQNR -∞ dB", "exact", "it could not be timed: no inputs", "? not measured"):
        assert said in page.text


def test_forty_cells_are_numbered_and_the_numbers_explained() -> None:
    page = seen(crowd())
    assert "40 artefacts" in page.text
    assert "no. 40" in page.text
    assert re.search(r"40\s+mobilenet_v4/target-7/int8", page.text)


def test_names_from_files_are_text_wherever_they_stand() -> None:
    page = seen(hostile())
    assert "script" not in page.tags
    assert "\x1b" not in page.text
    assert page.text.count(NASTY.replace("\x1b", "\\x1b").replace("\x00", "\\x00")) > 15


def test_page_is_painted_in_the_dark(site: chromium.Site, tmp_path: Any) -> None:
    target = tmp_path / "dark.png"
    options = ("--window-size=600,900", "--blink-settings=preferredColorScheme=0")
    chromium.visit(f"{site.address}/mixed.html", f"--screenshot={target}", *options)
    rows = chromium.pixels(target)
    assert rows[0][0] < 60
    assert len({bytes(row) for row in rows}) > 200  # most lines differ: there is text, and not a blank sheet
