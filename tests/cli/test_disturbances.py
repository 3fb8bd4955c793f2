"""What befalls a run from outside: a child or the parent killed, a model that hangs or changes meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from tests.cli.sandbox import Sandbox

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes in /proc")

VALIDATE = ("validate", "hang.onnx", "hang.onnx")


@pytest.fixture
def hanging(sandbox: Sandbox) -> Sandbox:
    """With hang.onnx, a loop of 2**40 rounds."""
    scalars = [helper.make_tensor_value_info("i", TensorProto.INT64, ())]
    scalars += [helper.make_tensor_value_info(name, TensorProto.BOOL, ()) for name in ("go", "goes")]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 4)) for name in ("v", "w", "x", "y")]
    nodes = [helper.make_node("Identity", ["go"], ["goes"]), helper.make_node("Add", ["v", "v"], ["w"])]
    body = helper.make_graph(nodes, "round", [*scalars[:2], values[0]], [scalars[2], values[1]])
    rounds = helper.make_tensor("rounds", TensorProto.INT64, (), [2**40])
    yes = helper.make_tensor("yes", TensorProto.BOOL, (), [True])
    loop = helper.make_node("Loop", ["rounds", "yes", "x"], ["y"], "loop", body=body)
    graph = helper.make_graph([loop], "hang", values[2:3], values[3:], [rounds, yes])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, sandbox.folder / "hang.onnx")
    return sandbox


def children(process: int) -> list[int]:
    return [
        int(child)
        for task in Path(f"/proc/{process}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]


def is_busy(process: int) -> bool:
    """Whether it has computed for two seconds, so that it is past its imports and in the loop."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12]) > 2 * os.sysconf("SC_CLK_TCK")


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(met: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not met() and time.monotonic() < deadline:
        time.sleep(0.05)
    return met()


def started(sandbox: Sandbox, *arguments: str) -> tuple[subprocess.Popen[str], int]:
    """A command, and its child that is running the model."""
    running = subprocess.Popen(
        sandbox.command(*arguments),
        cwd=sandbox.folder,
        env=sandbox.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert until(lambda: any(is_busy(child) for child in children(running.pid)), 60)
    return running, next(child for child in children(running.pid) if is_busy(child))


@pytest.mark.parametrize("command", ["validate", "debug"])
def test_killed_runtime_is_the_machine_s_failure(command: str, hanging: Sandbox) -> None:
    before = hanging.contents()
    running, child = started(hanging, command, *VALIDATE[1:])
    os.kill(child, signal.SIGKILL)
    _, said = running.communicate(timeout=30)
    assert running.returncode == 6, said
    assert "ONNX Runtime running hang.onnx crashed (signal SIGKILL)" in said
    assert "memory" in said
    assert hanging.contents() == before


def test_runtime_that_hangs_ends_with_the_time_limit(hanging: Sandbox) -> None:
    before = hanging.contents()
    outcome = hanging.run(*VALIDATE, "--timeout", "3")
    assert outcome.code == 6
    assert "ONNX Runtime running hang.onnx hung: no answer within 3 s" in outcome.stderr
    assert "--timeout SECONDS" in outcome.stderr
    assert hanging.contents() == before


def test_killed_command_leaves_no_model_running(hanging: Sandbox) -> None:
    running, child = started(hanging, *VALIDATE)
    running.kill()
    running.communicate(timeout=30)
    try:
        assert until(lambda: not is_alive(child), 10)
    finally:
        if is_alive(child):
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("command", ["validate", "debug"])
def test_interrupted_command_leaves_no_model_running(command: str, hanging: Sandbox) -> None:
    before = hanging.contents()
    running, child = started(hanging, command, *VALIDATE[1:])
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=30)
    assert running.returncode == 130, said
    assert until(lambda: not is_alive(child), 10)
    assert hanging.contents() == before


@pytest.mark.parametrize("change", ["written", "removed"])
def test_verdict_on_a_file_that_changed_meanwhile_is_none(change: str, hanging: Sandbox) -> None:
    arguments = ("validate", "hang.onnx", "model.onnx", "--timeout", "8")
    running, _ = started(hanging, *arguments)
    if change == "removed":
        hanging.model.unlink()
    else:
        hanging.model.write_bytes(hanging.model.read_bytes() + b"\0")
    _, said = running.communicate(timeout=60)
    assert running.returncode == 4, said
    assert "model.onnx changed while it was read; run again" in said
