"""Run whole commands in fresh processes and measure the memory of all their processes together.

Proportional set size: pages that several processes share count once, and pages of mapped files count as well.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_SAMPLING = 0.005  # seconds between two looks at the memory


@dataclass(frozen=True)
class Cost:
    """A process and its children.

    Attributes:
        seconds: wall time.
        peak: bytes.
        said: its standard output.
    """

    seconds: float
    peak: int
    said: str


def measured(*command: str, environment: Mapping[str, str] | None = None) -> Cost:
    """Runs a command and watches the memory of its whole tree of processes."""
    started = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, env=environment)
        peak = 0
        while process.poll() is None:
            peak = max(peak, sum(map(proportional, tree(process.pid))))
            time.sleep(_SAMPLING)
        seconds = time.perf_counter() - started
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
        out.seek(0)
        return Cost(seconds, peak, out.read())


def tree(process: int) -> list[int]:
    """A process and all that descend from it; those that end meanwhile are left out."""
    found = [process]
    try:
        for thread in os.listdir(f"/proc/{process}/task"):
            for child in Path(f"/proc/{process}/task/{thread}/children").read_text().split():
                found += tree(int(child))
    except OSError:
        pass
    return found


def proportional(process: int) -> int:
    """The bytes that a process holds, its share of what it has with others; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def onnxport(*arguments: str, environment: Mapping[str, str] | None = None) -> Cost:
    return measured(str(Path(sys.executable).with_name("onnxport")), *arguments, environment=environment)
