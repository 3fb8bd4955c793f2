"""A run that is killed or interrupted at any moment, or loses a worker, ends as one that nobody disturbed.

A few moments in CI, all with `make soak`.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from onnxport.core.errors import INTERRUPTED
from tests.soak.project import NODES, TIMEOUT, Project, Undisturbed, descendants, wait_until_gone

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

_FEW = 1


def _some(count: int) -> list[object]:
    """Numbers of trials, of which CI makes the first."""
    return [pytest.param(each, marks=() if each < _FEW else pytest.mark.exhaustive) for each in range(count)]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    return Project.made(tmp_path / "project")


@pytest.mark.parametrize("trial", _some(30))
def test_a_killed_run_goes_on_where_it_was(trial: int, project: Project, undisturbed: Undisturbed) -> None:
    jobs = str(1 + trial % 2)
    with project.start("--jobs", jobs) as process:
        time.sleep(random.Random(trial).uniform(0.1, 1.1) * undisturbed.seconds)
        children = descendants(process.pid)
        process.kill()
        process.communicate(timeout=TIMEOUT)
    wait_until_gone(children)
    project.run("--jobs", jobs)
    assert project.artefacts() == undisturbed.artefacts
    assert project.litter() == []


@pytest.mark.parametrize("trial", _some(10))
def test_a_killed_worker_changes_nothing(trial: int, project: Project, undisturbed: Undisturbed) -> None:
    chance = random.Random(trial)
    with project.start("--jobs", "2") as process:
        while not (children := descendants(process.pid)):
            assert process.poll() is None
            time.sleep(0.02)
        if trial:  # the first kills one that has just begun
            time.sleep(chance.uniform(0, 0.7) * undisturbed.seconds)
            children = descendants(process.pid)
        with suppress(IndexError, ProcessLookupError):  # it was faster
            os.kill(chance.choice(children), signal.SIGKILL)
        _, stderr = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, stderr
    assert project.artefacts() == undisturbed.artefacts
    assert project.litter() == []


def test_ctrl_c_leaves_what_is_done_and_says_so(project: Project, undisturbed: Undisturbed) -> None:
    with project.start("--jobs", "2") as process:
        said = _read_until(process, "[1/")
        children = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=TIMEOUT)
    assert process.returncode == INTERRUPTED, said + rest
    assert re.search(rf"\d of {NODES} nodes are cached; the same command continues from there\n", rest)
    assert rest.endswith("error: interrupted\nexit 130\n")
    assert "Traceback" not in rest
    wait_until_gone(children)
    assert not (project.folder / "build").exists()
    assert project.litter() == []
    (first,) = re.findall(r"\[1/4\] (.+): made", said)
    assert f"{first}: cached, proven" in project.run("--jobs", "2")
    assert project.artefacts() == undisturbed.artefacts


def _read_until(process: subprocess.Popen[str], text: str) -> str:
    """What `process` says on stderr until a line has `text`."""
    said = ""
    assert process.stderr is not None
    for line in process.stderr:
        said += line
        if text in line:
            return said
    raise AssertionError(f"it ended with {said}")
