"""Runs on a Dask cluster whose processes are killed at random moments: the bytes of a run that nobody disturbed.

All of it with `make soak`; in CI tests/pipelines/executors/test_dask.py has a worker killed at one moment.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from onnxport.core.errors import MACHINE_FAILED
from tests.soak.project import ROOT, TIMEOUT, Project, descendants, wait_until_gone

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(os.name != "posix", reason="signals of POSIX"),
]


class Cluster:
    """A scheduler and two workers with a nanny each, as `dask scheduler` and `dask worker` start them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        pytest.importorskip("distributed")
        self._folder, self._stack = folder, stack
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{port}"
        self.scheduler = self._started("scheduler", "--host", "127.0.0.1", "--port", str(port))
        self.workers = [
            self._started("worker", self.address, "--nthreads", "1", "--local-directory", str(folder))
            for _ in range(2)
        ]
        self.wait_for_workers()

    def wait_for_workers(self) -> None:
        from distributed import Client

        with Client(self.address, timeout=60, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)

    def kill_worker(self, number: int) -> None:
        """Kills a worker's process; its nanny starts another."""
        for child in descendants(self.workers[number].pid):
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(child, signal.SIGKILL)
                return

    def _started(self, what: str, *options: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.dask_{what}", "--no-dashboard", *options],
            cwd=self._folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._stack.callback(self._end, process)
        return process

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        family = [process.pid, *descendants(process.pid)]
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        wait_until_gone(family)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path_factory.mktemp("cluster"), stack)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    project = Project.made(tmp_path_factory.mktemp("undisturbed") / "project")
    project.run()
    return project.artefacts()


@pytest.mark.parametrize("trial", range(10))
def test_workers_that_are_killed_change_nothing(
    trial: int, cluster: Cluster, expected: dict[str, str], tmp_path: Path
) -> None:
    chance = random.Random(trial)
    project = Project.made(tmp_path / "project")
    cluster.wait_for_workers()
    with project.start("--executor", "dask", "--scheduler", cluster.address) as process:
        for number in chance.sample((0, 1), chance.choice((1, 2))):
            time.sleep(chance.uniform(1, 4))
            cluster.kill_worker(number)
        _, stderr = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, stderr
    assert project.artefacts() == expected
    assert project.litter() == []


@pytest.mark.parametrize("trial", range(3))
def test_without_its_scheduler_a_run_fails_and_goes_on_elsewhere(
    trial: int, expected: dict[str, str], tmp_path: Path
) -> None:
    project = Project.made(tmp_path / "project")
    with ExitStack() as stack:
        folder = tmp_path / "cluster"
        folder.mkdir()
        cluster = Cluster(folder, stack)
        with project.start("--executor", "dask", "--scheduler", cluster.address) as process:
            assert process.stderr is not None
            for line in process.stderr:
                if "made" in line:
                    break
            cluster.scheduler.kill()
            _, stderr = process.communicate(timeout=TIMEOUT)
    assert process.returncode == MACHINE_FAILED, stderr
    assert "the Dask cluster at tcp://127.0.0.1:" in stderr
    assert "Traceback" not in stderr
    project.run()
    assert project.artefacts() == expected
    assert project.litter() == []


def test_two_runs_at_once_on_one_cluster(cluster: Cluster, expected: dict[str, str], tmp_path: Path) -> None:
    projects = [Project.made(tmp_path / name) for name in ("one", "other")]
    cluster.wait_for_workers()
    options = ("--executor", "dask", "--scheduler", cluster.address)
    with projects[0].start(*options) as first, projects[1].start(*options) as second:
        for process in (first, second):
            _, stderr = process.communicate(timeout=TIMEOUT)
            assert process.returncode == 0, stderr
    assert [project.artefacts() for project in projects] == [expected, expected]
