"""The page of a bench: its content, and in headless Chromium that it fits a phone and makes no request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onnxport.bench.report import BenchReport
from onnxport.reports.bench import html as view
from tests.reports import chromium
from tests.reports.bench.handmade import REPORTS, crowd, gated, hostile, nothing, settings, whole
from tests.reports.handmade import NASTY
from tests.reports.pages import Page


def page_of(report: BenchReport) -> Page:
    return Page(view.view(report))


def test_pages_fit_a_phone_complain_of_nothing_ask_for_nothing_(tmp_path: Path) -> None:
    chromium.check_on_a_phone(tmp_path, {name: view.view(make()) for name, make in REPORTS.items()})


def test_page_says_all_that_was_found() -> None:
    page = page_of(whole())
    for said in (
        "mobilenetv2_int8.onnx is fastest: 4.52 ms",
        "7 artefacts: 6 measured, 1 not here",
        "Size against latency against accuracy",
        "closed at 60 dB SQNR and more",
        "Core ML runs on macOS only",
        "9.32–9.60 ms",
        "SQNR 24.3 dB",
        "AMD EPYC 7R13",
        "onnxport bench mobilenetv2.onnx 'out/mobilenetv2 int8.onnx' --report bench.html",
        "the machine was busy before",
        "exit code 0",
    ):
        assert said in page.text
    assert page.tags.count("svg") >= 2 + 6 + 6


def test_page_with_a_baseline_names_the_slower_row() -> None:
    page = page_of(gated())
    for said in (
        "✗ slower",
        "b.onnx is slower than the baseline allows",
        "1.17x (1.13–1.22)",
        "which may be noise",
        "Red diamonds",
    ):
        assert said in page.text
    assert "A dotted ring: accuracy was not measured." in page.text
    assert "The ring shows" not in page.text


def test_rows_of_several_batches_are_drawn_by_the_sample() -> None:
    page = page_of(settings())
    assert "Time of a sample" in page.text
    assert "Dots are slower settings" in page.text


def test_page_without_any_figure_has_no_drawing() -> None:
    page = page_of(nothing())
    assert "nothing could be measured" in page.text
    assert "svg" not in page.tags


def test_forty_artefacts_are_numbered_and_the_numbers_explained() -> None:
    source = view.view(crowd())
    for number, row in enumerate(crowd().rows, 1):
        assert f">{number}</text>" in source
        assert f"<li><b>{number}</b> {row.artifact}</li>" in source


def test_names_from_files_are_text_wherever_they_stand() -> None:
    page = page_of(hostile())
    assert "script" not in page.tags
    assert "\x1b" not in page.text
    assert page.text.count(NASTY.replace("\x1b", "\\x1b").replace("\x00", "\\x00")) > 4


@pytest.mark.parametrize("make", REPORTS.values())
def test_strips_stay_within_their_drawing(make: Any) -> None:
    bench = view.Bench(make())
    time, ratio = view.time_scale(bench), view.ratio_scale(bench)
    for row in bench.measured:
        assert row.latency is not None
        by = bench.samples(row)
        found = [(getattr(row.latency, name) or 0) / by for name in ("low", "median", "high", "p90", "p99")]
        places = list(map(time, found))
        assert places[:3] == sorted(places[:3])
        assert all(0 <= place <= view.LENGTH for place in places)
        assert row.against is None or 0 < ratio(row.against.limit) < view.LENGTH
        if row.memory is not None:
            layers = view.memory_layers(row.memory, row.memory.peak)
            assert layers[-1].at + layers[-1].length <= view.LENGTH + 0.2
            assert [layer.at for layer in layers] == sorted(layer.at for layer in layers)
