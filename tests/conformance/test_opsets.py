"""ONNX's own tests at other opsets: none answers otherwise than the original, whatever is refused."""

from __future__ import annotations

import random

import pytest

from tests.conformance import opsets
from tests.conformance.harness import cases

SHARE = 25  # every run takes one in so many, the same ones


def test_a_sample_of_the_cases_is_right_or_refused_at_other_opsets() -> None:
    folders = cases()
    sample = random.Random(0).sample(sorted(folders), len(folders) // SHARE)
    found = {name: opsets.outcomes(folders[name], bound=index % 2 == 1) for index, name in enumerate(sample)}
    wrong = {name: ways for name, ways in found.items() if any("wrong" in way for way in ways.values())}
    assert not wrong
    rights = sum(way == "right" for ways in found.values() for way in ways.values())
    assert rights > len(sample) * 1.5


@pytest.mark.exhaustive
@pytest.mark.parametrize("arguments", [[], ["--bound"]], ids=["fed", "bound"])
def test_no_case_is_wrong_at_another_opset(arguments: list[str]) -> None:
    assert opsets.main(arguments) == 0
