"""What undisturbed runs leave, once for all that disturb theirs."""

from __future__ import annotations

import time

import pytest

from tests.soak.project import Project, Undisturbed


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    project = Project.made(tmp_path_factory.mktemp("undisturbed") / "project")
    started = time.monotonic()
    project.run("--jobs", "2")
    return Undisturbed(project.artefacts(), time.monotonic() - started)
