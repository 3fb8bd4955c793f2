"""Ctrl-C, SIGTERM and SIGKILL in the middle of a conversion."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from onnxport import errors
from tests.cli.sandbox import Sandbox

TIMEOUT = 60.0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after", [0.0, 0.25])
def test_interrupted_run_cleans_up(number: signal.Signals, after: float, sandbox: Sandbox) -> None:
    before = sandbox.contents()
    with started(sandbox) as process:
        wait_for_staging(sandbox, process)
        time.sleep(after)
        children = children_of(process.pid)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=TIMEOUT)
    assert process.returncode == errors.INTERRUPTED
    assert "error: interrupted" in stderr
    assert stderr.endswith("exit 130\n")
    assert "Traceback" not in stderr
    assert sandbox.contents() == before
    wait_until_gone(children)


def test_second_ctrl_c_does_not_break_the_cleaning_up(sandbox: Sandbox) -> None:
    before = sandbox.contents()
    with started(sandbox) as process:
        wait_for_staging(sandbox, process)
        for _ in range(20):
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIMEOUT)
    assert process.returncode == errors.INTERRUPTED
    assert sandbox.contents() == before


def test_next_run_sweeps_what_a_killed_one_left(sandbox: Sandbox) -> None:
    with started(sandbox) as process:
        wait_for_staging(sandbox, process)
        process.kill()
        process.communicate(timeout=TIMEOUT)
    assert not (sandbox.folder / "model.tflite").exists()
    assert list(sandbox.folder.glob(".onnxport-*"))
    assert sandbox.run("convert", "model.onnx", "--to", "ort", "--no-validate").code == errors.PROVEN
    assert not list(sandbox.folder.glob(".onnxport-*"))


def started(sandbox: Sandbox) -> subprocess.Popen[str]:
    return subprocess.Popen(
        sandbox.command("convert", "model.onnx", "--to", "tflite"),
        cwd=sandbox.folder,
        env=sandbox.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_staging(sandbox: Sandbox, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not list(sandbox.folder.glob(".onnxport-*")):
        assert process.poll() is None, "the run ended before it could be interrupted"
        assert time.monotonic() < deadline
        time.sleep(0.005)


def children_of(process: int) -> list[int]:
    """The processes that `process` has started; none where the system has no /proc."""
    listed = Path(f"/proc/{process}/task/{process}/children")
    return [int(child) for child in listed.read_text().split()] if listed.exists() else []


def wait_until_gone(processes: list[int]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while left := [process for process in processes if Path(f"/proc/{process}").exists()]:
        assert time.monotonic() < deadline, f"still running: {left}"
        time.sleep(0.05)
