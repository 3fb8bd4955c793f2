"""The Markdown report, read by a CommonMark parser with GitHub's tables."""

from __future__ import annotations

from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from onnxport.core.errors import CannotConvertError, Refusal
from onnxport.reports.markdown import failure
from onnxport.reports.run import markdown
from onnxport.reports.run_report import RunReport
from tests.reports.handmade import NASTY, crowded, failing, lossy, nasty

PARSER = MarkdownIt("gfm-like", {"linkify": False})


def text(token: Token) -> str:
    return "".join(child.content for child in token.children or ())


def tables(source: str) -> list[list[list[str]]]:
    """The cells of each table, row by row, as a reader sees them."""
    found: list[list[list[str]]] = []
    for before, token in zip(PARSER.parse(source), PARSER.parse(source)[1:], strict=False):
        if before.type == "table_open":
            found.append([])
        if before.type == "tr_open":
            found[-1].append([])
        if before.type in ("td_open", "th_open"):
            found[-1][-1].append(text(token))
    return found


def test_real_run_has_a_table_of_its_outputs(real: Path, outcome: str) -> None:
    source = (real / f"{outcome}.md").read_text(encoding="utf-8")
    verdict = "proven" if outcome == "passing" else "not equivalent"
    assert source.splitlines()[0] == f"## {'✓' if outcome == 'passing' else '✗'} digits.tflite: {verdict}"
    (head, row), *_ = tables(source)
    assert head[:2] == ["output", "verdict"]
    assert row[0] == "logits"
    assert row[1].endswith(verdict)


def test_cells_are_the_figures() -> None:
    fidelity, metrics, *_ = tables(markdown.view(failing()))
    assert fidelity[1] == [
        "scores",
        "✗ not equivalent",
        "difference 0.2 at [0,3], allowed 1e-05",
        "0.2",
        "0.2",
        "14 dB",
        "3 of 60",
    ]
    assert ["top-1 agreement (top1_agreement)", "scores", "0.9", "at least 0.98: missed"] in metrics


def test_names_from_files_are_plain_text() -> None:
    source = markdown.view(nasty())
    shown = NASTY.replace("\x1b", "\\x1b").replace("\x00", "\\x00")
    (_, row), *_ = tables(source)
    assert row[0] == shown
    kinds = {child.type for token in PARSER.parse(source) for child in token.children or ()}
    assert kinds <= {"text", "softbreak", "text_special", "strong_open", "strong_close"}
    assert "<script" not in PARSER.render(source)


def test_every_run_is_read_without_html(handmade: RunReport) -> None:
    tokens = PARSER.parse(markdown.view(handmade))
    assert not [token for token in tokens if "html" in token.type]
    rows = [row for table in tables(markdown.view(handmade)) for row in table]
    assert all(len(row) in (4, 6, 7) for row in rows)


def test_2000_outputs_are_cut_with_a_count_and_the_worst_stays() -> None:
    source = markdown.view(crowded())
    (table, *_) = tables(source)
    assert len(table) == 51
    assert table[1][0] == "bad"
    assert "… and 1,950 more outputs" in source


def test_command_is_there_to_be_copied() -> None:
    (block,) = [token for token in PARSER.parse(markdown.view(failing())) if token.type == "code_block"]
    assert block.content == "onnxport validate model.onnx 'out/my model.tflite' --report report.html\n"


def test_failed_run_is_a_heading_and_the_error_as_printed() -> None:
    refusals = (Refusal("Loop", "<b>`decode`|", "carries a sequence"),)
    tokens = PARSER.parse(failure(CannotConvertError("m.onnx", refusals=refusals), "convert"))
    assert tokens[1].content == "✗ onnxport convert failed, exit 3"
    (block,) = [token for token in tokens if token.type == "code_block"]
    assert block.content == "m.onnx:\n  Loop  '<b>`decode`|'  carries a sequence\n"


def test_worst_element_inputs_and_what_debug_found_are_there() -> None:
    shown = " ".join(
        text(token) for token in PARSER.parse(markdown.view(failing())) if token.type == "inline"
    )
    assert "scores: at [0, 3] the reference says 0.7, the candidate 0.9 (set 2 (image))" in shown
    assert "Compared on generated inputs: set 1 (image): image [1, 3, 8, 8], k []" in shown
    assert "node: Conv '/stem/conv1/Conv', stage tflite" in shown
    assert "to reproduce it alone: model.debug" in shown


def test_quality_has_no_column_for_a_tolerance() -> None:
    (table, metrics) = tables(markdown.view(lossy()))
    assert "beyond tolerance" not in table[0]
    assert metrics[1] == ["SQNR (sqnr)", "scores", "14 dB", "at least 20: missed"]
