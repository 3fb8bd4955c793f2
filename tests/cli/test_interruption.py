"""Ctrl-C, SIGTERM and SIGKILL in the middle of a conversion."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from onnxport.cli import signals
from onnxport.core import errors
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


# Moments of the first second: imports, loading, converting, proving.
@pytest.mark.parametrize("after", [0.065 * step for step in range(15)])
def test_ctrl_c_at_any_moment_ends_the_command(after: float, sandbox: Sandbox) -> None:
    before = sandbox.contents()
    with started(sandbox, "--json") as process:
        wait_for_handlers(process)
        time.sleep(after)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=TIMEOUT)
    assert "Traceback" not in stderr
    document = json.loads(stdout)
    assert document["exit_code"] == process.returncode
    if process.returncode != errors.PROVEN:
        assert process.returncode == errors.INTERRUPTED
        assert document["error"]["message"] == "interrupted"
        assert stderr.endswith("error: interrupted\nexit 130\n")
        assert sandbox.contents() == before


# What Python or a library does with an exception that a signal handler raises, each before a minute of work.
LOST = {
    "in a weakref callback": """
class Thing: pass
thing = Thing()
def callback(_):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.1)
reference = weakref.ref(thing, callback)
del thing
time.sleep(60)
""",
    "swallowed": """
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
except BaseException:
    time.sleep(60)
""",
    "not raised before a native library returns": """
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
os.kill(os.getpid(), signal.SIGINT)
time.sleep(60)
""",
    "made an error of another kind": """
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
except BaseException:
    raise ImportError("the C extension could not be imported")
""",
}


@pytest.mark.parametrize("how", LOST)
def test_ctrl_c_that_gets_lost_ends_the_command_all_the_same(how: str, sandbox: Sandbox) -> None:
    lines = "".join(f"    {line}\n" for line in LOST[how].strip().splitlines())
    sandbox.patch(
        "import onnxport.converters.ort as ort\n"
        "import os, signal, time, weakref\n"
        f"def convert(*_):\n{lines}"
        "ort.convert = convert\n"
    )
    before = sandbox.contents()
    outcome = sandbox.run("convert", "model.onnx", "--to", "ort", "--json", timeout=TIMEOUT)
    assert outcome.code == errors.INTERRUPTED
    assert outcome.document["error"]["message"] == "interrupted"
    assert "Traceback" not in outcome.stderr
    assert sandbox.contents() == before


def test_code_of_an_interruption_is_the_documented_one() -> None:
    assert signals.CODE == errors.INTERRUPTED


def test_next_run_sweeps_what_a_killed_one_left(sandbox: Sandbox) -> None:
    with started(sandbox) as process:
        wait_for_staging(sandbox, process)
        process.kill()
        process.communicate(timeout=TIMEOUT)
    assert not (sandbox.folder / "model.tflite").exists()
    assert list(sandbox.folder.glob(".onnxport-*"))
    assert sandbox.run("convert", "model.onnx", "--to", "ort", "--no-validate").code == errors.PROVEN
    assert not list(sandbox.folder.glob(".onnxport-*"))


def started(sandbox: Sandbox, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        sandbox.command("convert", "model.onnx", "--to", "tflite", *options),
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


def wait_for_handlers(process: subprocess.Popen[str]) -> None:
    """Until the interpreter's own start is over and SIGTERM, the second of ours, is caught."""
    status = Path(f"/proc/{process.pid}/status")
    if not status.exists():
        time.sleep(0.3)
        return
    deadline = time.monotonic() + TIMEOUT
    while not _caught(status.read_text()) & 1 << (signal.SIGTERM - 1):
        assert time.monotonic() < deadline
        time.sleep(0.0005)


def _caught(status: str) -> int:
    (line,) = (line for line in status.splitlines() if line.startswith("SigCgt:"))
    return int(line.split()[1], 16)


def children_of(process: int) -> list[int]:
    """The processes that `process` has started; none where the system has no /proc."""
    listed = Path(f"/proc/{process}/task/{process}/children")
    return [int(child) for child in listed.read_text().split()] if listed.exists() else []


def wait_until_gone(processes: list[int]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while left := [process for process in processes if Path(f"/proc/{process}").exists()]:
        assert time.monotonic() < deadline, f"still running: {left}"
        time.sleep(0.05)
