"""Conversions in a row, and many at once, leave nothing behind and give the same bytes. `make soak` runs 500."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.cli.sandbox import ROOT


@pytest.mark.parametrize(
    ("count", "threads"),
    [
        pytest.param(20, 1),
        pytest.param(16, 8),
        pytest.param(500, 1, marks=(pytest.mark.exhaustive, pytest.mark.timeout(3600))),
        pytest.param(200, 8, marks=(pytest.mark.exhaustive, pytest.mark.timeout(3600))),
    ],
)
def test_conversions_leave_nothing_behind(count: int, threads: int) -> None:
    """In a process of its own: what other tests imported would hide what a conversion holds.

    Each thread fills an arena of glibc's, for 250 conversions with 8 threads; one arena shows what is held.
    """
    command = [sys.executable, "-m", "tests.soak.load", "--count", str(count), "--threads", str(threads)]
    environment = os.environ | {"MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "children: 0 -> 0" in done.stdout
    assert "scratch: 0 -> 0" in done.stdout
