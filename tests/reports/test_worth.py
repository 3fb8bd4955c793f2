"""Every form shows the same speed, size and accuracy of a lower precision."""

from __future__ import annotations

from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt

from onnxport.reports import phrases
from onnxport.reports.run import html as page
from onnxport.reports.run import junit, markdown
from onnxport.reports.run.terminal import notes, result_lines
from onnxport.reports.run_report import Latency, RunReport
from tests.reports.handmade import NASTY, faster, latency, passing, slower, untimed
from tests.reports.pages import Page


def in_html(run: RunReport) -> str:
    return Page(page.view(run)).text


def in_markdown(run: RunReport) -> str:
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(markdown.view(run))
    return "\n".join("".join(child.content for child in each.children or ()) for each in tokens)


def in_terminal(run: RunReport) -> str:
    return "\n".join([result_lines(run), *notes(run)])


VIEWS = [in_html, in_markdown, in_terminal]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (latency(), "2.9x faster (2.7-3.1)"),
        (latency(speedup=0.625, low=0.5, high=0.8), "1.6x slower (1.2-2.0)"),
        (latency(speedup=1.02, low=0.97, high=1.04), "about as fast (0.97-1.04x)"),
        (latency(speedup=2.9, low=2.9, high=2.9, confidence=0.0, rounds=1), "2.9x faster (one round)"),
        (latency(speedup=1.0, low=1.0, high=1.0, confidence=0.0, rounds=1), "1.0x faster (one round)"),
    ],
)
def test_speed_is_a_ratio_with_its_interval(found: Latency, said: str) -> None:
    assert phrases.speed(found) == said


@pytest.mark.parametrize("view", VIEWS)
def test_what_pays_is_said_and_nothing_else(view: Callable[[RunReport], str]) -> None:
    assert "2.9x faster (2.7-3.1)" in view(faster())
    assert "not faster" not in view(faster())


@pytest.mark.parametrize("view", VIEWS)
def test_what_does_not_pay_has_its_reason_and_the_setting(view: Callable[[RunReport], str]) -> None:
    shown = view(slower())
    assert "1.6x slower (1.2-2.0)" in shown
    assert "slower: activations are signed; what would help: --activations u8" in shown
    assert phrases.text(NASTY) in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("view", VIEWS)
def test_what_was_not_timed_says_why(view: Callable[[RunReport], str]) -> None:
    assert "not timed: without a proof there are no inputs to run it on" in view(untimed())


@pytest.mark.parametrize("view", [in_html, in_markdown])
def test_pages_have_speed_size_and_loss_side_by_side(view: Callable[[RunReport], str]) -> None:
    shown = view(faster())
    for said in (
        "Is it worth it?",
        "with 96 % confidence: 9.21 ms before, 3.18 ms after, 96 rounds in ONNX Runtime 1.31.1 on this CPU",
        "4.7 MB, 0.99 of the source's size",
        "quality: SQNR 27.1 dB, top-1 98 %",
    ):
        assert said in shown


@pytest.mark.parametrize("view", VIEWS)
def test_a_run_that_lowers_nothing_is_silent(view: Callable[[RunReport], str]) -> None:
    assert "worth it" not in view(passing())
    assert "faster" not in view(passing())


def test_junit_has_it_as_a_property() -> None:
    properties = ElementTree.fromstring(junit.view(slower())).iter("property")
    assert {each.get("name"): each.get("value") for each in properties}["speed"] == "1.6x slower (1.2-2.0)"
