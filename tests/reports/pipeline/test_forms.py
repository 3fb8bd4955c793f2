"""JSON, JUnit, SARIF, Markdown and the terminal's lines of a pipeline's run, read by parsers that are not ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from junitparser import Error, Failure, JUnitXml, Skipped, TestCase
from lxml import etree
from markdown_it import MarkdownIt

from fixtures import models
from onnxport.reports import document
from onnxport.reports.pipeline import junit, markdown, matrix, sarif, terminal
from onnxport.reports.pipeline_report import PipelineReport
from tests.reports.handmade import NASTY, failing
from tests.reports.pipeline.handmade import (
    cached,
    cell,
    crowd,
    hostile,
    lone,
    lost,
    mixed,
    node,
    report,
    undelivered,
)

SCHEMA = Path(__file__).parents[3] / "docs" / "schema" / "pipeline-report.schema.json"
SEEN = NASTY.replace("\x1b", "\\x1b").replace("\x00", "\\x00")


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")


# JSON


def test_the_schema_in_the_repository_is_that_of_the_report() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == document.schema("pipeline-report")


def test_document_keeps_the_schema_and_reads_back(handmade: PipelineReport) -> None:
    said = document.view(handmade)
    parsed = json.loads(said, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(parsed)
    assert document.view(PipelineReport.model_validate_json(said)) == said


# JUnit


def suites(run: PipelineReport) -> JUnitXml:
    return JUnitXml.fromstring(junit.view(run).encode())


def cases(run: PipelineReport) -> dict[tuple[str, str], TestCase]:
    return {(suite.name, case.name): case for suite in suites(run) for case in suite}


@pytest.mark.real
def test_junit_keeps_jenkins_schema(handmade: PipelineReport) -> None:
    schema = etree.XMLSchema(etree.parse(models.schema("junit-10.xsd")))
    schema.assertValid(etree.fromstring(junit.view(handmade).encode()))


def test_numbers_of_cases_are_those_in_the_file(handmade: PipelineReport) -> None:
    told, counted = suites(handmade), suites(handmade)
    counted.update_statistics()
    assert (told.tests, told.failures, told.errors) == (counted.tests, counted.failures, counted.errors)


def test_a_run_fails_in_junit_exactly_if_it_fails(handmade: PipelineReport) -> None:
    assert (suites(handmade).failures + suites(handmade).errors > 0) == (handmade.exit_code != 0)


def test_each_cell_and_each_failed_stage_is_a_case() -> None:
    found = {name: [type(result) for result in case.result] for name, case in cases(mixed()).items()}
    assert found == {
        ("digits", "int8"): [Failure],
        ("digits", "phone"): [],
        ("digits", "tiny/int8"): [Skipped],
        ("digits", "small"): [Failure],
        ("digits", "apple"): [Error],
        ("voice", "phone"): [],
        ("voice", "server"): [Skipped],
    }


def test_failures_say_which_stage_and_which_node_and_skipped_ones_why() -> None:
    found = cases(mixed())
    (broken,) = found["digits", "int8"].result
    assert "stage: quantize" in broken.text.splitlines()
    assert "ONNX node: Conv '/stem/conv1/Conv'" in broken.text.splitlines()
    (skipped,) = found["digits", "tiny/int8"].result
    assert (skipped.type, skipped.message) == ("not run", "not run: digits/int8 failed")
    (error,) = found["digits", "apple"].result
    assert error.text.splitlines()[-1] == "exit 3"


def test_what_cannot_be_put_in_its_place_is_an_error_of_its_own() -> None:
    (result,) = cases(undelivered())["digits", "a"].result
    assert isinstance(result, Error)
    assert result.text.splitlines()[1:] == ["stage: delivery", "exit 6"]
    (found,) = results(undelivered())
    assert found["ruleId"] == "stage-failed"
    assert "Permission denied" in found["message"]["text"]


def test_figures_are_the_cases_output_and_the_suites_properties() -> None:
    voice = next(suite for suite in suites(mixed()) if suite.name == "voice")
    properties = {each.name: each.value for each in voice.properties()}
    assert properties["phone size"] == "1.2 MB (0.25x)"
    assert properties["phone speed"] == "2.9x faster (2.7-3.1)"
    assert "accuracy: SQNR 27.1 dB" in cases(mixed())["voice", "phone"].system_out.splitlines()


# SARIF


def results(run: PipelineReport) -> list[Any]:
    found: list[Any] = json.loads(sarif.view(run))["runs"][0]["results"]
    return found


@pytest.mark.real
def test_sarif_keeps_the_official_schema(handmade: PipelineReport) -> None:
    schema = json.loads(models.schema("sarif-2.1.0.json").read_text(encoding="utf-8"))
    jsonschema.Draft4Validator(schema).validate(json.loads(sarif.view(handmade)))


def test_there_is_a_result_exactly_if_the_run_fails(handmade: PipelineReport) -> None:
    found = results(handmade)
    assert bool(found) == (handmade.exit_code != 0)
    prints = {each["partialFingerprints"]["primaryLocationLineHash"] for each in found}
    assert len(prints) == len(found)


def test_results_stand_at_the_lines_that_ask_for_what_failed() -> None:
    found = {
        each["locations"][0]["logicalLocations"][0]["name"]: (
            each["ruleId"],
            each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"],
            each["locations"][0]["physicalLocation"]["region"]["startLine"],
        )
        for each in results(mixed())
    }
    assert found == {
        "digits/int8": ("not-equivalent", "ci/pipeline.yaml", 6),
        "digits/apple": ("stage-failed", "ci/pipeline.yaml", 17),
        "digits/small": ("limit-exceeded", "ci/pipeline.yaml", 14),
    }


def test_result_names_the_onnx_node_and_what_is_not_made_for_it() -> None:
    first = results(mixed())[0]
    assert first["locations"][0]["logicalLocations"][1]["name"] == "/stem/conv1/Conv"
    (related,) = first["relatedLocations"]
    assert related["message"]["text"] == "digits/tiny/int8 is not made because of it"
    assert related["physicalLocation"]["region"]["startLine"] == 11


def test_paths_start_from_the_services_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path / "models")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    place = results(mixed())[0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": "models/ci/pipeline.yaml", "uriBaseId": "%SRCROOT%"}


# Markdown


def rendered(run: PipelineReport) -> list[Any]:
    return MarkdownIt("gfm-like", {"linkify": False}).parse(markdown.view(run))


def test_summary_is_a_table_with_a_row_per_artefact_and_folded_details() -> None:
    said = markdown.view(mixed())
    assert said.startswith("## ✗ ci/pipeline.yaml: 6 artefacts, 2 proven, ")
    assert (
        "| ✓ | voice/phone | proven | 1.2 MB (0.25x) | SQNR 27.1 dB | 2.9x faster \\(2.7-3.1\\) | made, 1.2 s |"
        in said
    )
    assert "not made because of it: digits/tiny/int8" in said
    assert said.count("<details>") == said.count("</details>") == 7  # six stages were judged; the times
    kinds = [token.type for token in rendered(mixed())]
    assert kinds.index("table_open") < kinds.index("html_block")


def test_summary_of_many_fits_a_job(handmade: PipelineReport) -> None:
    assert len(markdown.view(handmade).encode()) < 1024 * 1024


def test_names_with_markup_are_text_in_the_summary() -> None:
    kinds = {token.type for token in rendered(hostile())}
    blocks = [token.content for token in rendered(hostile()) if token.type == "html_block"]
    assert "table_open" in kinds
    assert not any("<script" in block for block in blocks)
    inline = [child for token in rendered(hostile()) for child in token.children or ()]
    assert not {child.type for child in inline} & {"html_inline", "link_open", "image"}


# The terminal


def test_lines_say_it_all_and_the_totals_follow() -> None:
    assert terminal.result_lines(mixed(), figures=False).splitlines() == [
        "digits/phone       4.7 MB (0.99x)   proven        worst 3.1e-07 of scale at 'scores'   SQNR 132 dB   "
        "from the cache",
        "digits/tiny/int8                    not run",
        "digits/small       4.7 MB (0.99x)   over budget   worst 3.1e-07 of scale at 'scores'   SQNR 132 dB   "
        "made, 1.2 s, not kept",
        "digits/apple                        failed",
        "voice/phone        1.2 MB (0.25x)   proven        fidelity: worst 3.1e-07 of scale at 'scores'   "
        "SQNR 27.1 dB   2.9x faster (2.7-3.1)   made, 1.2 s",
        "voice/server       4.7 MB (0.99x)   unproven      made, 1.2 s",
        "6 artefacts, 2 proven, 1 unproven, 1 not run, 1 over budget, 1 failed; 3 made, 1 from the cache; 12.3 s",
    ]


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (lone(), "1 artefact, 1 proven; 1 made; 12.3 s"),
        (cached(), "3 artefacts, 3 proven; 3 from the cache; 0.4 s"),
        (lost(), "3 artefacts, 2 not equivalent, 1 failed; 12.3 s"),
        (crowd(), "40 artefacts, 39 proven, 1 not equivalent; 39 from the cache; 12.3 s"),
    ],
)
def test_totals(run: PipelineReport, said: str) -> None:
    assert matrix.totals(run) == said


def test_failures_have_their_reason_stage_node_and_line_below() -> None:
    first, second, third = (terminal.fault_lines(fault).splitlines() for fault in matrix.faults(mixed()))
    assert first == [
        "digits/int8 is not equivalent to model.onnx: 'scores': difference 0.2",
        "  stage quantize, ONNX node Conv '/stem/conv1/Conv', ci/pipeline.yaml:6",
        "  Conv '/stem/conv1/Conv' is the first node that differs",
        "  not made because of it: digits/tiny/int8",
    ]
    assert second[1].split() == ["StringSplit", "'pre/split'", *"Core ML has no string operators".split()]
    assert third[-1] == "  stage limits, ci/pipeline.yaml:14"


def test_a_failure_names_keys_of_the_pipeline_file() -> None:
    (fed,) = failing().artifacts
    said = fed.report.model_copy(update={"verdict": "inconclusive", "fed": ()})
    run = failing().model_copy(update={"artifacts": (fed.model_copy(update={"report": said}),)})
    made = node("digits/a", run)
    (fault,) = matrix.faults(report([made], [cell(made)]))
    assert (
        "give inputs of your own with inputs: DIR, or accept it unproven with accept_inconclusive"
        in fault.sentence
    )


def test_figures_of_failed_proofs_follow_unasked_and_all_on_request() -> None:
    assert terminal.result_lines(mixed()).count("\nfidelity: ") == 1
    assert terminal.result_lines(mixed(), detailed=True).count("\nfidelity: ") == 5


def test_names_from_files_do_not_command_the_terminal() -> None:
    run = hostile()
    said = [terminal.result_lines(run, detailed=True), *map(terminal.fault_lines, matrix.faults(run))]
    assert not [text for text in said if {"\x1b", "\x00"} & set(text)]
    assert SEEN in said[0]


def test_notes_are_said_once_with_those_they_are_about() -> None:
    assert terminal.notes(cached()) == ["note: only generated inputs were fed (digits/a, digits/b, digits/c)"]
    (note,) = terminal.notes(crowd())
    assert note.endswith("mobilenet_v0/target-2/int8 and 37 more)")
