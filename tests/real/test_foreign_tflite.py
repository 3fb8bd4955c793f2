"""A TFLite file that a network's authors made themselves, under other names: judge and runtimes had no part in it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import onnxport
from fixtures import models
from onnxport.core import errors
from tests.cli.sandbox import Sandbox

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

# basic_pitch/inference.py asks ONNX Runtime for these as "note", "onset" and "contour".
INPUT = {"serving_default_input_2:0": "input_2"}
CONTOUR = {"StatefulPartitionedCall:0": "contour"}
OUTPUTS = {"StatefulPartitionedCall:1": "note", "StatefulPartitionedCall:2": "onset"} | CONTOUR


def files() -> tuple[Path, Path]:
    return models.path("basic-pitch/nmp.onnx"), models.path("basic-pitch/nmp.tflite")


def test_the_proposed_map_is_the_authors_own_and_proves_their_file(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    refused = sandbox.run("validate", *files())
    assert refused.code == errors.USAGE
    proposal = re.search(r"if so, give (.*)", refused.stderr)
    assert proposal is not None
    options = shlex.split(proposal.group(1))
    assert set(options[1::2]) == {f"{ours}={theirs}" for ours, theirs in (INPUT | OUTPUTS).items()}
    outcome = sandbox.run("validate", *files(), *options, "--budget", "sqnr=80")
    assert (outcome.code, "proven: within float32 noise" in outcome.stdout) == (0, True), outcome.stderr


def test_a_map_that_confuses_two_outputs_of_one_shape_is_not_equivalent() -> None:
    confused = {"StatefulPartitionedCall:1": "onset", "StatefulPartitionedCall:2": "note"} | CONTOUR
    report = onnxport.validate_model(*files(), map=INPUT | confused)
    assert report.verdict == "not equivalent"
    verdicts = {output.name: output.verdict for output in report.outputs}
    assert verdicts == dict.fromkeys(confused, "not equivalent") | dict.fromkeys(CONTOUR, "proven")
