"""`quantize` and `convert` say what a lower precision is worth on this CPU; nothing depends on it."""

from __future__ import annotations

import pytest

from tests.cli.sandbox import Sandbox
from tests.cli.test_convert_int8 import CALIBRATED, sampled

QUANTIZE = ("quantize", "model.onnx", "--int8", "--calib", "samples")
# What a later process runs at its start: the clock that measures is broken.
BROKEN = """
import onnxport.bench.worker as child

def turn(*given):
    raise RuntimeError("on purpose")

child.Runner.turn = turn
"""


@pytest.mark.parametrize("command", [QUANTIZE, ("convert", "model.onnx", "--to", "ort", *CALIBRATED)])
def test_report_has_the_ratio_of_both_and_its_interval(command: tuple[str, ...], sandbox: Sandbox) -> None:
    sampled(sandbox)
    outcome = sandbox.run(*command, "--json")
    assert outcome.code == 0, outcome.stderr
    (artifact,) = outcome.document["artifacts"]
    found = artifact["worth"]["latency"]
    assert found["low"] <= found["speedup"] <= found["high"]
    assert 0 < found["before_ms"] < 100
    assert 0 < found["after_ms"] < 100
    assert found["rounds"] >= 1
    assert found["runtime"].startswith("ONNX Runtime ")
    # digits.onnx is far too small to gain by it.
    assert bool(artifact["worth"]["findings"]) == (found["speedup"] < 1.5)
    assert any(each["step"] == "latency" for each in artifact["timings"])


@pytest.mark.parametrize("options", [(*CALIBRATED, "--io", "int8"), ("--precision", "int8-dynamic")])
def test_tflite_is_timed_against_the_float_model_in_tflite(
    options: tuple[str, ...], sandbox: Sandbox
) -> None:
    sampled(sandbox)
    outcome = sandbox.run("convert", "model.onnx", "--to", "tflite", *options, "--json")
    assert outcome.code == 0, outcome.stderr
    (artifact,) = outcome.document["artifacts"]
    found = artifact["worth"]["latency"]
    assert found["runtime"].startswith("LiteRT ")
    assert found["low"] <= found["speedup"] <= found["high"]
    assert {path.name for path in sandbox.folder.iterdir()} == {"model.onnx", "model.tflite", "samples"}


def test_a_package_is_timed_on_the_device(sandbox: Sandbox) -> None:
    sampled(sandbox)
    outcome = sandbox.run("convert", "model.onnx", "--to", "coreml", *CALIBRATED)
    assert outcome.code == 0, outcome.stderr
    assert "not timed: time and memory of a Core ML model can be measured only" in outcome.stderr


def test_a_model_that_is_slower_on_purpose_gets_its_reason(sandbox: Sandbox) -> None:
    """16-bit activations, for which ONNX Runtime has no products."""
    sampled(sandbox)
    outcome = sandbox.run("quantize", "model.onnx", "--int16x8", "--calib", "samples")
    assert outcome.code == 0, outcome.stderr
    assert "slower (" in outcome.stdout or "about as fast (" in outcome.stdout
    assert "er: ONNX Runtime has no products of 16-bit activations" in outcome.stderr
    assert "what would help: --int8" in outcome.stderr


def test_signed_activations_get_their_reason(sandbox: Sandbox) -> None:
    sampled(sandbox)
    outcome = sandbox.run(*QUANTIZE, "--activations", "s8", "--json")
    assert outcome.code == 0, outcome.stderr
    (artifact,) = outcome.document["artifacts"]
    assert artifact["worth"]["latency"]["speedup"] < 1.5
    assert any(each["setting"] == "--activations u8" for each in artifact["worth"]["findings"])


def test_the_bytes_are_the_same_timed_or_not(sandbox: Sandbox) -> None:
    sampled(sandbox)
    made = []
    for name, more in (("timed", ()), ("untimed", ("--no-latency",))):
        outcome = sandbox.run(*QUANTIZE, *more, "-o", f"{name}.onnx", "--json")
        assert outcome.code == 0, outcome.stderr
        made.append((sandbox.folder / f"{name}.onnx").read_bytes())
        assert (outcome.document["artifacts"][0]["worth"] is None) == (name == "untimed")
    assert made[0] == made[1]


def test_a_broken_clock_breaks_nothing(sandbox: Sandbox) -> None:
    sampled(sandbox)
    sandbox.patch(BROKEN)
    outcome = sandbox.run(*QUANTIZE, "--json")
    assert outcome.code == 0, outcome.stderr
    assert "on purpose" in outcome.document["artifacts"][0]["worth"]["why_not"]
    assert (sandbox.folder / "model_int8.onnx").exists()
    assert {path.name for path in sandbox.folder.iterdir()} == {"model.onnx", "model_int8.onnx", "samples"}


def test_what_is_refused_is_not_timed(sandbox: Sandbox) -> None:
    sampled(sandbox)
    outcome = sandbox.run(*QUANTIZE, "--budget", "sqnr=90", "--json")
    assert outcome.code == 1
    assert outcome.document["artifacts"][0]["worth"] is None


def test_without_a_proof_there_is_nothing_to_run_it_on(sandbox: Sandbox) -> None:
    sampled(sandbox)
    outcome = sandbox.run(*QUANTIZE, "--no-validate")
    assert outcome.code == 0, outcome.stderr
    assert "not timed: without a proof" in outcome.stderr


def test_a_conversion_that_lowers_nothing_is_not_timed(sandbox: Sandbox) -> None:
    outcome = sandbox.run("convert", "model.onnx", "--to", "ort", "--json")
    assert outcome.document["artifacts"][0]["worth"] is None
