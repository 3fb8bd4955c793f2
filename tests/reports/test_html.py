"""A run's page in headless Chromium: its content, its requests, and whether it fits a phone."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from onnxport.reports.run import html as view
from onnxport.reports.run_report import RunReport
from tests.reports import chromium
from tests.reports.handmade import (
    NASTY,
    RUNS,
    crowded,
    failing,
    inconclusive,
    judgement,
    lossy,
    nasty,
    output,
    run_of,
    waived,
)
from tests.reports.pages import Page

PHONE = 360


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, real: Path) -> Iterator[chromium.Site]:
    """Every page made by hand and those of the real runs, served on this machine."""
    folder = tmp_path_factory.mktemp("site")
    for name, make in RUNS.items():
        (folder / f"{name}.html").write_text(view.view(make()), encoding="utf-8")
    for name in ("passing", "failing"):
        shutil.copy(real / f"{name}.html", folder / f"real-{name}.html")
    with chromium.serving(folder) as served:
        yield served


PAGES = [*RUNS, "real-passing", "real-failing"]


def seen(run: RunReport) -> Page:
    return Page(view.view(run))


@pytest.mark.parametrize("page", ["real-passing", "real-failing"])
def test_page_loads_without_complaint_and_asks_for_nothing_else(site: chromium.Site, page: str) -> None:
    site.asked.clear()
    visit = chromium.dom(f"{site.address}/{page}.html")
    assert visit.console == []
    assert site.asked == [f"/{page}.html"]
    assert "</footer>" in visit.stdout


def test_a_page_that_asks_for_something_would_be_noticed(site: chromium.Site) -> None:
    source = view.view(failing()).replace("</footer>", '</footer><img src="x.png"><script>alert(1)</script>')
    (site.folder / "greedy.html").write_text(source, encoding="utf-8")
    complaints = " ".join(chromium.dom(f"{site.address}/greedy.html").console)
    assert "img-src" in complaints
    assert "default-src" in complaints or "script-src" in complaints


def test_no_page_is_wider_than_a_phone_or_complains(site: chromium.Site) -> None:
    """All pages at once: a browser takes a second to start."""
    visit = chromium.probe(site, PAGES, PHONE)
    assert visit.console == []
    assert sorted(site.asked) == sorted(["/probe.html", *(f"/{page}.html" for page in PAGES)])
    assert chromium.measured(visit) == {page: {"scroll": PHONE, "shown": PHONE, "wide": []} for page in PAGES}


def test_a_page_that_is_too_wide_would_be_noticed(site: chromium.Site) -> None:
    source = (site.folder / "failing.html").read_text(encoding="utf-8")
    source = source.replace("</footer>", '</footer><hr width="900">')
    (site.folder / "wide.html").write_text(source, encoding="utf-8")
    found = chromium.measured(chromium.probe(site, ["wide"], PHONE))["wide"]
    assert found["scroll"] > PHONE
    assert found["wide"]


@pytest.mark.parametrize(("scheme", "option"), [("light", 1), ("dark", 0)])
def test_page_is_painted_in_light_and_dark(
    site: chromium.Site, tmp_path: Path, scheme: str, option: int
) -> None:
    target = tmp_path / f"{scheme}.png"
    url = f"{site.address}/failing.html"
    chromium.visit(
        url,
        f"--screenshot={target}",
        "--window-size=600,1400",
        f"--blink-settings=preferredColorScheme={option}",
    )
    rows = chromium.pixels(target)
    assert (rows[0][0] > 200) == (scheme == "light")
    assert len({bytes(row) for row in rows}) > 200  # most lines differ: there is text, and not a blank sheet


def test_failing_page_shows_verdict_figures_charts_and_node(site: chromium.Site) -> None:
    page = Page(chromium.dom(f"{site.address}/failing.html").stdout)
    for text in (
        "✗ not equivalent",
        "out/model.tflite does not compute what model.onnx computes",
        "0.9, at least 0.98: missed",
        "✗ at most 0.1: missed",
        "✓ at least 20: kept",
        "512 elements without any difference",
        "[0, 3]",
        "Conv '/stem/conv1/Conv' is the first node that differs",
        "set 1 (image)",
        "4.7 MB",
        "onnxport validate model.onnx 'out/my model.tflite' --report report.html",
        "3.11.7",
        "only generated inputs were fed",
    ):
        assert text in page.text
    assert page.tags.count("svg") == 2
    assert page.tags.count("circle") == 40
    assert page.tags.count("rect") == 9


def test_real_pages_say_how_the_runs_ended(site: chromium.Site) -> None:
    passing = Page(chromium.dom(f"{site.address}/real-passing.html").stdout)
    failing = Page(chromium.dom(f"{site.address}/real-failing.html").stdout)
    assert "✓ proven" in passing.text
    assert "digits.tflite computes what digits.onnx computes" in passing.text
    assert "onnxport convert digits.onnx --to tflite" in passing.text
    assert "✗ not equivalent" in failing.text
    assert "digits.tflite does not compute what broken.onnx computes" in failing.text


def test_names_from_files_are_text_wherever_they_stand() -> None:
    page = seen(nasty())
    assert "script" not in page.tags
    assert page.text.count(NASTY.replace("\x1b", "\\x1b").replace("\x00", "\\x00")) > 15
    assert "\x1b" not in page.text


def test_page_with_2000_outputs_is_cut_with_a_count() -> None:
    page = seen(crowded())
    assert page.tags.count("details") == 101  # and the layers'
    assert "… and 1,900 more outputs" in page.text
    assert page.tags.count("circle") <= 2000
    assert page.text.index("bad") < page.text.index("y0")


def test_waived_validation_is_said() -> None:
    page = seen(waived())
    assert "– unproven" in page.text
    assert "validation was switched off" in page.text


def test_figures_that_are_no_numbers_are_shown() -> None:
    assert "NaN, NaN of scale" in seen(inconclusive()).text
    assert "∞ dB" in seen(inconclusive()).text


def test_values_stand_in_the_order_of_the_graph_with_local_and_a_mark_on_the_row_at_fault() -> None:
    source = view.view(failing())
    rows = re.findall(r"<tr[^>]*><td data-label=\"node\">.*?</tr>", source, re.DOTALL)
    assert [re.search(r"/block(\d+)/", row)[1] for row in rows] == [str(i) for i in range(40)]  # type: ignore[index]
    assert all('data-label="local"' in row for row in rows)
    assert [i for i, row in enumerate(rows) if "at-fault" in row] == [25]
    assert "at fault" in rows[25]
    assert ">40</td>" in rows[25]


def test_quality_shows_nothing_of_a_tolerance_and_sqnr_once() -> None:
    page = seen(lossy())
    for text in ("tolerance there", "noise of the reference", "beyond tolerance"):
        assert text not in page.text
    assert page.text.count("14 dB, at least 20: missed") == 1
    assert "(sqnr)" not in page.text


def test_an_output_whose_loss_was_measured_is_no_failure_of_a_proven_artefact() -> None:
    quality = judgement(
        output(verdict="measured"), verdict="measured", question="quality", reason="SQNR 27 dB"
    )
    translation = judgement(question="translation", reason="each node is the source's")
    text = seen(run_of(quality, translation, reason="each node is the source's")).text
    assert "not proven" not in text
    assert "no outputs" not in text
