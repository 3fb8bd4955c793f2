"""ONNX's own tests to TFLite: what once came out right stays right, and nothing comes out wrong."""

from __future__ import annotations

import pytest

from tests.conformance.harness import cases
from tests.conformance.listed import all_faults, case_per_operator, check_lists, sample_faults
from tests.conformance.page import TFLITE as PAGE
from tests.conformance.tflite import Conformance

BOUND = pytest.mark.parametrize("bound", [False, True], ids=["fed", "bound"])


@pytest.mark.parametrize(("name", "bound"), case_per_operator(PAGE))
def test_each_operator_is_right(conformance: Conformance, name: str, bound: bool) -> None:
    outcome = conformance.run(cases()[name], bound=bound)
    assert outcome.verdict == "right", outcome.detail


@BOUND
def test_a_sample_and_what_failed_last_are_as_listed(
    conformance: Conformance, bound: bool, cache: pytest.Cache
) -> None:
    assert not sample_faults(conformance, PAGE, bound, cache)


@pytest.mark.exhaustive
@BOUND
def test_every_case_is_as_listed(conformance: Conformance, bound: bool, cache: pytest.Cache) -> None:
    assert not all_faults(conformance, PAGE, bound, cache)


def test_the_page_says_what_the_lists_say() -> None:
    assert PAGE.path.read_text(encoding="utf-8") == PAGE.rendered(), "write it anew: make conformance"


@BOUND
def test_the_lists_hold_every_case_once_and_none_that_is_wrong(bound: bool) -> None:
    check_lists(PAGE, bound)
