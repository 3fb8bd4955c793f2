"""JUnit XML: read by the junitparser library, and validated with Jenkins' own schema by lxml."""

from __future__ import annotations

from pathlib import Path

import pytest
from junitparser import Failure, JUnitXml, Skipped, TestCase
from lxml import etree

from fixtures import models
from onnxport.core.errors import CannotConvertError, Refusal
from onnxport.reports.junit import failure
from onnxport.reports.run import junit
from onnxport.reports.run_report import RunReport
from onnxport.validate.report import Verdict
from tests.reports.handmade import (
    NASTY,
    crowded,
    failing,
    inconclusive,
    judgement,
    nasty,
    output,
    run_of,
    waived,
    without_outputs,
)


@pytest.fixture(scope="module")
def jenkins() -> etree.XMLSchema:
    return etree.XMLSchema(etree.parse(models.schema("junit-10.xsd")))


def read(text: str) -> JUnitXml:
    return JUnitXml.fromstring(text.encode("utf-8"))


def cases(run: RunReport) -> list[TestCase]:
    return [case for suite in read(junit.view(run)) for case in suite]


@pytest.mark.real
def test_real_run_keeps_jenkins_schema(real: Path, outcome: str, jenkins: etree.XMLSchema) -> None:
    jenkins.assertValid(etree.parse(real / f"{outcome}.xml"))


@pytest.mark.real
def test_run_made_by_hand_keeps_jenkins_schema(handmade: RunReport, jenkins: etree.XMLSchema) -> None:
    jenkins.assertValid(etree.fromstring(junit.view(handmade).encode("utf-8")))


def test_real_run_is_read(real: Path, outcome: str) -> None:
    suites = JUnitXml.fromfile(str(real / f"{outcome}.xml"))
    (suite,) = suites
    (case,) = suite
    assert (suite.name, case.classname, case.name) == ("digits.tflite", "digits.tflite.fidelity", "logits")
    assert suites.failures == suite.failures == (outcome == "failing")
    assert suite.time > 0
    if outcome == "failing":
        (failure,) = case.result
        assert failure.message.startswith("not equivalent: difference ")
    else:
        assert case.is_passed


def test_numbers_of_cases_are_those_in_the_file(handmade: RunReport) -> None:
    told = read(junit.view(handmade))
    counted = read(junit.view(handmade))
    counted.update_statistics()
    assert (told.tests, told.failures, told.errors) == (counted.tests, counted.failures, counted.errors)


def test_a_case_fails_exactly_if_the_run_does(handmade: RunReport) -> None:
    failed = [case for case in cases(handmade) if case.is_failure]
    assert bool(failed) == (handmade.exit_code != 0)


def test_each_question_has_a_case_per_output_and_budget() -> None:
    found = {(case.classname, case.name): case.is_failure for case in cases(failing())}
    assert found == {
        ("model.tflite.fidelity", "scores"): True,
        ("model.tflite.fidelity", "boxes"): False,
        ("model.tflite.quality", "scores"): True,
        ("model.tflite.quality", "char_error_rate"): True,
        ("model.tflite.quality", "sqnr"): False,
    }


def test_case_has_the_figures() -> None:
    (case, *_) = cases(failing())
    lines = case.system_out.splitlines()
    assert "top-1 agreement (top1_agreement): 0.9, at least 0.98: missed" in lines
    assert "ulps: ∞ ULP" in lines
    assert "made by: Gemm '/head/Gemm'" in lines


@pytest.mark.parametrize(("run", "name"), [(inconclusive(), "y"), (without_outputs(), "verdict")])
def test_whatever_is_not_proven_is_a_failure(run: RunReport, name: str) -> None:
    (case,) = cases(run)
    assert case.name == name
    (result,) = case.result
    assert isinstance(result, Failure)
    assert result.type == run.artifacts[0].report.verdict


def test_waived_validation_is_a_skipped_case() -> None:
    (case,) = cases(waived())
    (result,) = case.result
    assert isinstance(result, Skipped)
    assert result.message == "unproven: validation was switched off"


@pytest.mark.parametrize("verdict", ["unproven", "inconclusive"])
def test_accepted_doubt_is_a_skipped_case(verdict: Verdict) -> None:
    doubted = output("y", verdict, rule="it does not vary")
    (case,) = cases(run_of(judgement(doubted, verdict=verdict), verdict="unproven", reason="accepted"))
    assert case.is_skipped


def test_names_with_markup_and_control_characters_survive() -> None:
    (case,) = cases(nasty())
    assert case.name == NASTY.replace("\x1b", "\\x1b").replace("\x00", "\\x00")


def test_every_one_of_2000_outputs_is_a_case() -> None:
    assert len(cases(crowded())) == 2000


@pytest.mark.real
def test_failed_run_is_an_error_with_its_reasons(jenkins: etree.XMLSchema) -> None:
    refusals = (
        Refusal("StringSplit", "pre/\x00split", "no string operators"),
        Refusal("Loop", "x", "sequences"),
    )
    error = CannotConvertError("model.onnx cannot be converted to TFLite", refusals=refusals)
    source = failure(error, "convert")
    jenkins.assertValid(etree.fromstring(source.encode("utf-8")))
    ((case,),) = read(source)
    (result,) = case.result
    assert (case.classname, case.name, case.is_error) == ("onnxport.convert", "run", True)
    assert (result.type, result.message) == (
        "CannotConvertError",
        "model.onnx cannot be converted to TFLite",
    )
    assert [line.split()[0] for line in result.text.splitlines()[1:]] == ["StringSplit", "Loop", "exit"]


def test_failure_names_the_node_that_debug_found_and_its_repro() -> None:
    root = etree.fromstring(junit.view(failing()).encode())
    said = [failure.text or "" for failure in root.iter("failure")]
    assert said
    assert all("node: Conv '/stem/conv1/Conv', stage tflite" in text for text in said)
    assert all("to reproduce it alone: model.debug" in text for text in said)
