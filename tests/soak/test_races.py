"""Two runs at once on one cache and one output. One race in CI, all with `make soak`."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.soak.project import TIMEOUT, Project, Undisturbed


@pytest.mark.parametrize(
    "trial", [pytest.param(each, marks=() if each < 1 else pytest.mark.exhaustive) for each in range(20)]
)
def test_two_runs_at_once(trial: int, tmp_path: Path, undisturbed: Undisturbed) -> None:
    project = Project.made(tmp_path / "project")
    chance = random.Random(trial)
    with project.start("--jobs", str(chance.choice((1, 2)))) as first:
        time.sleep(chance.uniform(0, 0.5))
        with project.start("--jobs", str(chance.choice((1, 2)))) as second:
            said = [process.communicate(timeout=TIMEOUT)[1] for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), said
    assert project.artefacts() == undisturbed.artefacts
    assert project.litter() == []
    assert "made" not in project.run(), "an entry was lost or damaged"
