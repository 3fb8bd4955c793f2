"""Temporary folders: each is gone when its process ends, or at the next one's first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import sys
from onnxport.core.scratch import ScratchFolder
folder = ScratchFolder()
open(folder.name + "/model.onnx", "wb").close()
print(folder.name, flush=True)
sys.stdin.read()
folder.cleanup()
"""


def started(place: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that has a folder below `place` until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"TMPDIR": str(place)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_folder_ends_with_its_owner(tmp_path: Path) -> None:
    process, folder = started(tmp_path)
    assert (folder / "model.onnx").is_file()
    process.communicate()
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="Windows has no locks that end with a killed process")
def test_the_folder_of_a_killed_process_goes_and_that_of_a_live_one_stays(tmp_path: Path) -> None:
    killed, left = started(tmp_path)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    alive, kept = started(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    link = tmp_path / "onnxport-scratch-link"
    link.symlink_to(outside)
    assert left.is_dir(), "it is too young to be judged by its lock"
    for folder in (left, kept):
        os.utime(folder, (0, 0))
    process, _ = started(tmp_path)
    assert not left.exists()
    assert (kept / "model.onnx").is_file()
    assert outside.is_dir()
    for each in (alive, process):
        each.communicate()


@pytest.mark.skipif(os.name != "posix", reason="Windows has no locks that end with a killed process")
def test_the_folder_of_a_killed_process_goes_though_the_clock_was_ahead(tmp_path: Path) -> None:
    killed, left = started(tmp_path)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    later = time.time() + 365 * 86400
    os.utime(left, (later, later))
    process, _ = started(tmp_path)
    process.communicate()
    assert not left.exists()
