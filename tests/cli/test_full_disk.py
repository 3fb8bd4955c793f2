"""A disk without room: the sentence, the exit code, and nothing half written."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from onnxport.core import errors
from onnxport.formats.artifact import SUFFIXES
from tests.cli.failing import error_of
from tests.cli.sandbox import Sandbox

ORT = ("--to", "ort")


@pytest.fixture
def full_disk(sandbox: Sandbox) -> Iterator[Path]:
    """A disk with room for the model and little more."""
    disk = sandbox.folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=60k", "tmpfs", disk], check=False)
    if mounted.returncode:
        pytest.skip("mounting a small disk takes root")
    yield disk
    subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("target", ["tflite", "coreml", "ort"])
def test_full_disk(target: str, full_disk: Path, sandbox: Sandbox) -> None:
    shutil.copy(sandbox.model, full_disk / "model.onnx")
    before = sandbox.contents()
    outcome = sandbox.run("convert", "disk/model.onnx", "--to", target)
    assert outcome.code == errors.MACHINE_FAILED
    assert f"model{SUFFIXES[target]} cannot be written" in error_of(outcome)
    assert "free some space" in error_of(outcome)
    assert sandbox.contents() == before


def test_disk_that_fills_up_with_weights(full_disk: Path, sandbox: Sandbox) -> None:
    """coremltools writes them, and does not say why it could not."""
    before = sandbox.contents()
    outcome = sandbox.run("convert", "model.onnx", "--to", "coreml", "-o", "disk/model.mlpackage")
    assert outcome.code == errors.MACHINE_FAILED
    assert "disk/model.mlpackage cannot be written: No space left on device" in error_of(outcome)
    assert sandbox.contents() == before


def test_report_on_a_full_disk_leaves_no_artefact(full_disk: Path, sandbox: Sandbox) -> None:
    (full_disk / "filling").write_bytes(bytes(56 * 1024))  # room for a page, which the report is longer than
    before = sandbox.contents()
    outcome = sandbox.run("convert", "model.onnx", *ORT, "--report", "disk/run.json")
    assert outcome.code == errors.MACHINE_FAILED
    assert "disk/run.json cannot be written: No space left on device" in error_of(outcome)
    assert "give --report a path on another disk" in error_of(outcome)
    assert sandbox.contents() == before


def test_report_that_cannot_be_written_is_found_before_the_work(full_disk: Path, sandbox: Sandbox) -> None:
    with contextlib.suppress(OSError):
        (full_disk / "filling").write_bytes(bytes(60 * 1024))
    outcome = sandbox.run("convert", "model.onnx", *ORT, "--report", "disk/run.json")
    assert outcome.code == errors.MACHINE_FAILED
    assert "give --report a path on another disk" in error_of(outcome)
    assert "load ..." not in outcome.stderr
