"""SARIF 2.1.0: validated with the official schema and with the further rules of GitHub's code scanning."""

from __future__ import annotations

import json
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any

import jsonschema
import pytest

from fixtures import models
from onnxport.reports.run import sarif
from onnxport.reports.run_report import RunReport
from onnxport.reports.sarif import artifact_location
from tests.reports.handmade import NASTY, crowded, detailed, failing, judgement, nasty, output, run_of


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft4Validator:
    schema = json.loads(models.schema("sarif-2.1.0.json").read_text(encoding="utf-8"))
    return jsonschema.Draft4Validator(schema, format_checker=jsonschema.FormatChecker())


def results(run: RunReport) -> list[Any]:
    found: list[Any] = json.loads(sarif.view(run))["runs"][0]["results"]
    return found


@pytest.mark.real
def test_real_run_keeps_the_official_schema(
    real: Path, outcome: str, validator: jsonschema.Draft4Validator
) -> None:
    log = json.loads((real / f"{outcome}.sarif").read_text(encoding="utf-8"))
    validator.validate(log)
    (run,) = log["runs"]
    assert len(run["results"]) == (outcome == "failing")
    for result in run["results"]:
        assert result["ruleId"] == "not-equivalent"
        location = result["locations"][0]["physicalLocation"]["artifactLocation"]
        assert location == {"uri": "broken.onnx", "uriBaseId": "%SRCROOT%"}


@pytest.mark.real
def test_run_made_by_hand_keeps_the_official_schema(
    handmade: RunReport, validator: jsonschema.Draft4Validator
) -> None:
    validator.validate(json.loads(sarif.view(handmade)))


def test_there_is_a_result_exactly_if_the_run_fails(handmade: RunReport) -> None:
    assert bool(results(handmade)) == (handmade.exit_code != 0)


def test_a_result_names_the_node_that_differs_first_and_the_one_that_makes_the_output() -> None:
    first, _ = results(failing())
    found = first["locations"][0]["logicalLocations"]
    assert [(place["kind"], place["name"]) for place in found] == [
        ("node", "/stem/conv1/Conv"),
        ("node", "/head/Gemm"),
        ("output", "scores"),
    ]
    assert found[0]["properties"] == {"op": "Conv", "value": "conv1", "stage": "tflite"}


def test_each_result_has_what_code_scanning_asks_for(handmade: RunReport) -> None:
    log = json.loads(sarif.view(handmade))["runs"][0]
    rules = [rule["id"] for rule in log["tool"]["driver"]["rules"]]
    prints = set()
    for result in log["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["message"]["text"]
        assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 1
        prints.add(result["partialFingerprints"]["primaryLocationLineHash"])
    assert len(prints) == len(log["results"])


def test_fingerprint_stays_when_the_figures_change() -> None:
    def fingerprint(**changes: Any) -> Any:
        asked = judgement(detailed().model_copy(update=changes), verdict="not equivalent")
        (result,) = results(run_of(asked, verdict="not equivalent", reason="difference 0.2"))
        return result["partialFingerprints"]

    assert fingerprint(max_abs=1.0, rule="another") == fingerprint() != fingerprint(name="other")


def test_names_with_markup_are_text() -> None:
    (result,) = results(nasty())
    assert NASTY.replace("\x1b", "\\x1b").replace("\x00", "\\x00") in result["message"]["text"]
    place = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert not set('<>|`\\"é\x1b {}') & set(place)


@pytest.mark.parametrize(
    ("path", "base", "uri"),
    [
        (PurePosixPath("models/my net.onnx"), PurePosixPath("/repo"), "models/my%20net.onnx"),
        (PurePosixPath("/repo/a/é.onnx"), PurePosixPath("/repo"), "a/%C3%A9.onnx"),
        (PurePosixPath("/else/m.onnx"), PurePosixPath("/repo"), "file:///else/m.onnx"),
        (PurePosixPath("C:\\net.onnx"), PurePosixPath("/repo"), "C%3A%5Cnet.onnx"),
        (PureWindowsPath("models\\net.onnx"), PureWindowsPath("C:\\repo"), "models/net.onnx"),
        (PureWindowsPath("C:\\repo\\a b\\net.onnx"), PureWindowsPath("C:\\repo"), "a%20b/net.onnx"),
        (PureWindowsPath("D:\\net.onnx"), PureWindowsPath("C:\\repo"), "file:///D:/net.onnx"),
    ],
    ids=str,
)
def test_location_is_relative_to_the_checkout(path: PurePath, base: PurePath, uri: str) -> None:
    location = artifact_location(path, base)
    assert location["uri"] == uri
    assert ("uriBaseId" in location) == (not uri.startswith("file:"))


def test_doubt_is_a_warning_and_a_fault_an_error() -> None:
    doubted = judgement(output("y", "inconclusive"), verdict="inconclusive")
    assert [r["level"] for r in results(run_of(doubted, verdict="inconclusive", reason="r"))] == ["warning"]
    assert [r["level"] for r in results(crowded())] == ["error"]
