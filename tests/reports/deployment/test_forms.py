"""A deployment in each of its forms: JSON, Markdown, JUnit XML, SARIF, and the page, also in Chromium."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from junitparser import JUnitXml
from markdown_it import MarkdownIt

from fixtures import models
from onnxport.deployment.report import Change, DeploymentReport
from onnxport.reports.deployment import figures, junit, markdown, sarif
from onnxport.reports.deployment import html as view
from tests.reports import chromium
from tests.reports.deployment.handmade import REPORTS, asked, crowd, fitting, hostile, report, strict, whole
from tests.reports.handmade import NASTY
from tests.reports.pages import Page


def page_of(found: DeploymentReport) -> Page:
    return Page(view.view(found))


@pytest.fixture(params=REPORTS)
def found(request: pytest.FixtureRequest) -> DeploymentReport:
    return REPORTS[request.param]()


def test_markdown_has_a_row_per_runtime_and_what_keeps_it_out(found: DeploymentReport) -> None:
    source = markdown.view(found)
    rendered = MarkdownIt("commonmark", {"html": False}).enable("table").render(source)
    assert rendered.count("<tr>") == 1 + len(found.placements)
    assert "<script" not in rendered


def test_a_change_for_a_runtime_that_names_no_node_is_not_counted() -> None:
    fixed = Change(said="fixed sizes", command="", mends=9)
    source = markdown.view(
        report([asked("rten", "RTen", "none", why="it needs sizes", change=fixed)])
    ).replace("\\", "")
    assert "fixed sizes (would let it load)" in source
    assert "of 0" not in source


def test_markdown_says_reasons_and_the_change() -> None:
    source = markdown.view(whole()).replace("\\", "")
    for said in (
        "2 of 6 runtimes take all of it",
        "72 of 106 nodes in 3 groups",
        "26 nodes Transpose: the runtime has no operator Transpose",
        "fix the input's sizes (would solve 26 of 34): onnxport optimize",
        "estimated, 1.24, source of 2026-05-01",
        "it did not answer within 60 s",
    ):
        assert said in source


@pytest.mark.parametrize(("make", "failures", "skipped"), [(whole, 0, 1), (strict, 4, 0), (fitting, 0, 0)])
def test_junit_has_a_case_per_runtime_that_fails_where_the_command_does(
    make: Any, failures: int, skipped: int
) -> None:
    report = make()
    found = JUnitXml.fromstring(junit.view(report).encode())
    assert (found.tests, found.failures, found.errors) == (len(report.placements), failures, 0)
    assert next(iter(found)).skipped == skipped
    assert (failures > 0) == (report.exit_code != 0)


def results(report: DeploymentReport) -> list[Any]:
    found: list[Any] = json.loads(sarif.view(report))["runs"][0]["results"]
    return found


@pytest.mark.real
@pytest.mark.parametrize("make", [whole, strict, hostile])
def test_sarif_keeps_the_official_schema(make: Any) -> None:
    schema = json.loads(models.schema("sarif-2.1.0.json").read_text(encoding="utf-8"))
    jsonschema.Draft4Validator(schema).validate(json.loads(sarif.view(make())))


def test_sarif_has_a_result_per_runtime_operator_and_reason() -> None:
    found = results(whole())
    assert [(each["ruleId"], each["properties"]["runtime"]) for each in found] == [
        *[("falls-back", "xnnpack")] * 3,
        ("not-taken", "tract"),
        ("not-taken", "rten"),
        ("not-known", "mnn"),
    ]
    nodes = [node["name"] for node in found[0]["locations"][0]["logicalLocations"]]
    assert nodes == [f"/neck/Transpose_{number}" for number in range(26)]
    assert {each["level"] for each in found} == {"warning"}
    assert {each["level"] for each in results(strict())} == {"error"}
    assert results(fitting()) == []


def test_fingerprints_differ() -> None:
    prints = [each["partialFingerprints"]["primaryLocationLineHash"] for each in results(crowd())]
    assert len(set(prints)) == len(prints)


def test_pages_fit_a_phone_complain_of_nothing_and_ask_for_nothing(tmp_path: Path) -> None:
    chromium.check_on_a_phone(tmp_path, {name: view.view(make()) for name, make in REPORTS.items()})


def test_page_says_all_that_was_found() -> None:
    page = page_of(whole())
    for said in (
        "face_detection.onnx: 2 of 6 runtimes take all of it",
        "2 all, 1 part, 2 none, 1 unknown; 4 asked here, 2 estimated from tables",
        "72 of 106",
        "would solve 26 of 34",
        "onnxport optimize models/face_detection.onnx --shape input=1,3,640,640",
        "opset 26, at most 21",
        "the output's size is 40, it computes 39",
        "/neck/Transpose_3 and 22 more",
        "constant nodes are not counted",
        "ONNX Runtime, NNAPI provider: it runs on a phone alone",
        "onnxport inspect models/face_detection.onnx --runs-on ort-cpu,xnnpack,nnapi,tract,rten,mnn",
    ):
        assert said in page.text
    inner = {link for link in page.links if link.startswith("#")}
    assert inner == {"#xnnpack", "#tract", "#rten", "#mnn"}
    assert inner <= page.places


def test_page_of_a_strict_run_says_whether_it_failed() -> None:
    assert "✗ falls back" in page_of(strict()).text
    assert "--error-on-fallback" in page_of(strict()).text
    assert "✓ no fallback" in page_of(fitting()).text
    assert "Operators that some leave out" not in page_of(fitting()).text


def test_page_of_many_fallbacks_is_cut_with_counts() -> None:
    source = view.view(crowd())
    assert len(source.encode()) < 500_000
    assert "more reasons" in source


def test_names_from_files_are_text_wherever_they_stand() -> None:
    page = page_of(hostile())
    assert "script" not in page.tags
    assert "\x1b" not in page.text
    assert page.text.count(NASTY.replace("\x1b", "\\x1b").replace("\x00", "\\x00")) > 10
    assert not any(link.startswith("javascript") for link in page.links)


def test_kinds_differ_by_operator_and_reason_the_most_frequent_first() -> None:
    (_, xnnpack, *_) = whole().placements
    assert [(kind.op, len(kind.nodes)) for kind in figures.kinds(xnnpack)] == [
        ("Transpose", 26),
        ("Add", 6),
        ("Resize", 2),
    ]
