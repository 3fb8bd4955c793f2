"""A folder beside a secret, and the command in forks of one warm process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.attacking import Target
from tests.hostile.forks import Forks, forks


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    with forks(tmp_path_factory.mktemp("forks")) as process:
        yield process


@pytest.fixture
def target(tmp_path: Path, running: Forks) -> Target:
    return Target.made(tmp_path, running)
