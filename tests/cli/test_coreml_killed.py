"""Conversions ended at random moments leave nothing in the temp folder, and nothing beside the output for long.

python -m tests.cli.test_coreml_killed 100 20 5     # conversions, of which by SIGTERM, of which by SIGKILL
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.cli.sandbox import DIGITS, ROOT


def leftovers(folder: Path, total: int, terminated: int, killed: int, seed: int = 0) -> tuple[list[str], int]:
    """What lies about after `total` conversions in `folder`, and how many of them a signal met alive.

    The first and the last are left alone; the first tells how long one takes, within which the others are ended.
    """
    dice = random.Random(seed)
    signals = [signal.SIGTERM] * terminated + [signal.SIGKILL] * killed
    plan: list[signal.Signals | None] = [*signals, *[None] * (total - 2 - len(signals))]
    dice.shuffle(plan)
    temporary, work = folder / "tmp", folder / "work"
    temporary.mkdir()
    work.mkdir()
    start = time.monotonic()
    _convert(work, temporary, None, 0.0)
    lasts = time.monotonic() - start
    met = sum(_convert(work, temporary, end, dice.random() * lasts) for end in (*plan, None))
    kept = {"digits.mlpackage"}
    found = [path.name for path in work.iterdir() if path.name not in kept]
    return sorted([*found, *(path.name for path in temporary.iterdir())]), met


def _convert(work: Path, temporary: Path, end: signal.Signals | None, moment: float) -> bool:
    """One conversion, ended after `moment` seconds; whether it was still running then."""
    command = [sys.executable, "-m", "onnxport", "convert", str(DIGITS), "--to", "coreml"]
    command += ["-o", str(work / "digits.mlpackage")]
    environment = os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    met = False
    if end is not None:
        time.sleep(moment)
        met = process.poll() is None
        process.send_signal(end)
    assert process.wait(timeout=300) == 0 or end is not None
    time.sleep(0.5 if end is not None else 0)  # children end with their parent, a moment later
    return met


@pytest.mark.slow
def test_killed_conversions_leave_nothing_behind(tmp_path: Path) -> None:
    left, met = leftovers(tmp_path, 10, 3, 2, seed=7)
    assert left == []
    assert met >= 3


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_a_hundred_conversions_leave_nothing_behind(tmp_path: Path) -> None:
    left, met = leftovers(tmp_path, 100, 20, 5, seed=11)
    assert left == []
    assert met >= 15  # of 25; a run that is sooner done than the first one is missed


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        left, met = leftovers(Path(place), *map(int, sys.argv[1:4]))
    sys.stdout.write(f"{met} ended while they ran; left behind: {left or 'nothing'}\n")
    sys.exit(bool(left))
