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

_LONGEST = 12.0  # seconds after which a run is ended at the latest


def leftovers(folder: Path, total: int, terminated: int, killed: int, seed: int = 0) -> list[str]:
    """What lies about after `total` conversions in `folder`, some of them ended by a signal; the last one is not."""
    dice = random.Random(seed)
    signals = [signal.SIGTERM] * terminated + [signal.SIGKILL] * killed
    plan: list[signal.Signals | None] = [*signals, *[None] * (total - 1 - len(signals))]
    dice.shuffle(plan)
    temporary, work = folder / "tmp", folder / "work"
    temporary.mkdir()
    work.mkdir()
    for end in (*plan, None):
        _convert(work, temporary, end, dice.random())
    kept = {"digits.mlpackage"}
    found = [path.name for path in work.iterdir() if path.name not in kept]
    return sorted([*found, *(path.name for path in temporary.iterdir())])


def _convert(work: Path, temporary: Path, end: signal.Signals | None, moment: float) -> None:
    command = [sys.executable, "-m", "onnxport", "convert", str(DIGITS), "--to", "coreml"]
    command += ["-o", str(work / "digits.mlpackage")]
    environment = os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if end is not None:
        time.sleep(moment * _LONGEST)
        process.send_signal(end)
    assert process.wait(timeout=300) == 0 or end is not None
    time.sleep(0.5 if end is not None else 0)  # children end with their parent, a moment later


@pytest.mark.slow
def test_killed_conversions_leave_nothing_behind(tmp_path: Path) -> None:
    assert leftovers(tmp_path, 10, 3, 2, seed=7) == []


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_a_hundred_conversions_leave_nothing_behind(tmp_path: Path) -> None:
    assert leftovers(tmp_path, 100, 20, 5, seed=11) == []


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        left = leftovers(Path(place), *map(int, sys.argv[1:4]))
    sys.stdout.write(f"left behind: {left or 'nothing'}\n")
    sys.exit(bool(left))
