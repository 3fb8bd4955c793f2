"""A profile in each of its forms: JSON, Markdown, and the page, also in headless Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from onnxport.profiling.report import ProfileReport
from onnxport.reports.profile import figures, flame, markdown
from onnxport.reports.profile import html as view
from tests.reports import chromium
from tests.reports.handmade import NASTY
from tests.reports.pages import Page
from tests.reports.profile.handmade import REPORTS, hostile, large, node, nothing, report, whole


def page_of(found: ProfileReport) -> Page:
    return Page(view.view(found))


@pytest.fixture(params=REPORTS)
def found(request: pytest.FixtureRequest) -> ProfileReport:
    return REPORTS[request.param]()


def test_markdown_has_the_hottest_and_the_groups(found: ProfileReport) -> None:
    source = markdown.view(found)
    rendered = MarkdownIt("commonmark", {"html": False}).enable("table").render(source)
    assert rendered.count("<table>") >= 3
    assert "<script" not in rendered


def test_pages_fit_a_phone_complain_of_nothing_and_ask_for_nothing(tmp_path: Path) -> None:
    chromium.check_on_a_phone(tmp_path, {name: view.view(make()) for name, make in REPORTS.items()})


def test_page_says_all_that_was_found() -> None:
    page = page_of(whole())
    for said in (
        "mobilenetv2.onnx: Conv takes 90 % of 31.6 ms",
        "106 nodes",
        "The 10 hottest nodes",
        "By operator",
        "By ONNX node",
        "/classifier/MatMul, /classifier/Add, /classifier/Relu and 1 more",
        "ONNX Runtime put it in",
        "onnxport profile models/mobilenetv2.onnx --report profile.html",
        "4.00 µs",
    ):
        assert said in page.text
    assert "By provider" not in page.text
    assert "By provider" in page_of(large()).text


def test_page_of_two_thousand_nodes_stays_below_a_megabyte_and_names_each() -> None:
    source = view.view(large())
    assert len(source.encode()) < 1_000_000
    assert all(f"op_{number}_of_many<" in source for number in range(2000))


def test_names_from_files_are_text_wherever_they_stand() -> None:
    page = page_of(hostile())
    assert "script" not in page.tags
    assert "\x1b" not in page.text
    assert page.text.count(NASTY.replace("\x1b", "\\x1b").replace("\x00", "\\x00")) > 4


def test_model_without_any_time_has_no_drawing() -> None:
    assert "rect" not in page_of(nothing()).tags or flame.draw(nothing()) is None


def leaves(drawing: flame.Flame) -> list[flame.Bar]:
    return [bar for bar in drawing.bars if bar.kind != "scope"]


@pytest.mark.parametrize("make", [whole, large, hostile])
def test_bars_fill_their_lines_in_the_order_of_execution(make: Any) -> None:
    drawing = flame.draw(make())
    assert drawing is not None
    bars = leaves(drawing)
    assert [(bar.y, bar.x) for bar in bars] == sorted((bar.y, bar.x) for bar in bars)
    lines = {bar.y for bar in bars}
    assert sum(bar.width for bar in bars) == pytest.approx(flame.WIDTH * len(lines), rel=0.01)
    assert max(bar.x + bar.width for bar in drawing.bars) <= flame.WIDTH + 0.2
    assert max(bar.y + bar.height for bar in drawing.bars) < drawing.height


@pytest.mark.parametrize("width", [20.0, 40.0, 60.0, 300.0])
def test_a_label_ends_where_its_bar_ends(width: float) -> None:
    text = "Fully Connected (NC, QS8, QC8W) GEMM"
    label = flame.Bar(0.0, 0.0, width, 40.0, "op0", text, "").label
    assert label == {20.0: "", 40.0: "Ful…", 60.0: "Fully C…", 300.0: text}[width]


def test_width_is_time_and_colour_is_the_operator() -> None:
    made = report([node("a", "Conv", 3.0), node("b", "Add", 1.0), node("c", "Conv", 4.0)])
    drawing = flame.draw(made)
    assert drawing is not None
    first, second, third = leaves(drawing)
    assert first.width == pytest.approx(3 * second.width, rel=0.01)
    assert third.width == pytest.approx(4 * second.width, rel=0.01)
    assert [bar.kind for bar in (first, second, third)] == ["op0", "op1", "op0"]


def test_bands_above_are_what_names_are_nested_in() -> None:
    made = report([node(f"/net/block.{at // 3}/{at}", "Conv", 1.0) for at in range(6)])
    drawing = flame.draw(made)
    assert drawing is not None
    scopes = [bar for bar in drawing.bars if bar.kind == "scope"]
    assert [bar.title.partition(":")[0] for bar in scopes] == ["block.0", "block.1"]
    assert [bar.width for bar in scopes] == [flame.WIDTH / 2] * 2


def test_names_below_which_hardly_any_time_is_spent_have_no_band() -> None:
    nested = [node(f"/block/{at // 3}/{at}", "Conv", 1.0) for at in range(6)]
    drawing = flame.draw(report([*nested, node("long", "Gemm", 100.0)]))
    assert drawing is not None
    assert [bar.kind for bar in drawing.bars if bar.kind == "scope"] == []


def test_thin_nodes_are_joined_and_counted() -> None:
    made = report([node("long", "Conv", 1000.0), *(node(f"n{at}", "Add", 0.01) for at in range(70))])
    drawing = flame.draw(made)
    assert drawing is not None
    _, joined = leaves(drawing)
    assert joined.title.startswith("70 nodes")


def test_a_node_has_the_names_of_its_onnx_nodes() -> None:
    fused = node("fused 3", "FusedGemm", 1.0, sources=("/MatMul", "/Add"))
    assert figures.node_title(fused) == "FusedGemm /MatMul, /Add: 1.00 ms, 0.0 %"
    assert figures.sources(node("a", "Conv", 1.0)) == ""
