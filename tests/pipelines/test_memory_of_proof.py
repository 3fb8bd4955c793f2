"""A proof has the memory of the compiler, whose process ends with its file, unless the next job needs it."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from onnxport.core.child_process import reuse_children
from onnxport.formats.artifact import SUFFIXES
from onnxport.pipelines import runner
from onnxport.pipelines.runner.clock import Silent
from onnxport.pipelines.runner.jobs import conversion

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="reads processes from Linux's /proc"
)


class Watching(Silent):
    """Lists the compilers among our processes when a step begins."""

    def __init__(self) -> None:
        self.compilers: dict[str, int] = {}

    def started(self, step: str) -> None:
        commands = [command_of(int(child)) for child in children()]
        self.compilers[step] = sum(".worker:Worker" in command for command in commands)


def children() -> list[str]:
    tasks = Path(f"/proc/{os.getpid()}/task").iterdir()
    return [child for task in tasks for child in (task / "children").read_text().split()]


def command_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:  # it has just ended
        return ""


@pytest.mark.parametrize(
    ("target", "several", "left"), [("tflite", False, 0), ("coreml", False, 0), ("tflite", True, 1)]
)
def test_the_compiler_ends_before_the_proof(tmp_path: Path, target: str, several: bool, left: int) -> None:
    watching = Watching()
    job = conversion(DIGITS, target, tmp_path / f"out{SUFFIXES[target]}", {})
    with reuse_children(several_jobs=True) if several else nullcontext():
        assert runner.run(job, "convert", watching).passed
    assert watching.compilers["convert"] == 1
    assert watching.compilers["validate"] == left
