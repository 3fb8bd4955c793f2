"""A run of a thousand models: the forms for people stay short, and show what failed."""

from __future__ import annotations

from functools import cache

from lxml import html as parser

from onnxport.core.errors import NOT_EQUIVALENT
from onnxport.reports.pipeline import html, markdown, terminal
from onnxport.reports.pipeline_report import PipelineReport
from tests.reports.handmade import failing
from tests.reports.pipeline.handmade import cell, crowd, node, report, sized

FAILED = "mobilenet_v900/target-0/int8"


@cache
def thousand() -> PipelineReport:
    """A thousand artefacts, of which the 14th and the 901st failed."""
    many = crowd(1000, 1)
    nodes, cells = list(many.nodes), list(many.cells)
    nodes[900] = node(nodes[900].name, sized(failing(), 900_000, 4.0))
    cells[900] = cell(nodes[900], path=None, verdict="not equivalent", exit_code=NOT_EQUIVALENT)
    return report(nodes, cells)


def test_the_terminal_shows_a_hundred_lines_and_those_that_failed_first() -> None:
    assert nodes_of(thousand())[900] == FAILED
    lines = terminal.result_lines(thousand(), figures=False).splitlines()
    assert len(lines) == 102
    assert FAILED.rpartition("/")[0] in "".join(lines[:2])
    assert lines[100] == "... and 900 more artefacts; --verbose lists all, --report DIR has each"
    assert lines[101].startswith("1,000 artefacts")
    assert len(terminal.result_lines(thousand(), detailed=True).splitlines()) > 2000


def test_the_page_lists_all_and_has_the_details_of_two_hundred() -> None:
    text = html.view(thousand())
    page = parser.fromstring(text)
    assert len(text) < 2_000_000
    assert len(page.xpath("//section[contains(@class, 'nodes')]/details")) == 200
    rows = page.xpath("//table[contains(@class, 'matrix')]/tbody/tr/th")
    assert len(rows) == 1000
    assert rows[0].text_content() in ("mobilenet_v13", "mobilenet_v900")
    assert len(page.xpath("(//div[@class='times'])[1]/meter")) == 40
    anchors = set(page.xpath("//@id"))
    assert all(each[1:] in anchors for each in page.xpath("//a/@href") if each.startswith("#"))
    assert "800 more stages" in text


def test_the_markdown_summary_fits_a_comment() -> None:
    assert len(markdown.view(thousand())) < 65_536


def nodes_of(run: PipelineReport) -> list[str]:
    return [each.name for each in run.nodes]
