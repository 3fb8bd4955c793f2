"""Programs that start and stop: keep a machine as busy as a shared one, reproducibly for a seed.

    python -m benchmarks.benching.burning SEED

Computes until its parent ends: integers in Python, products in the cache or sums over memory, for 0.4 s on average,
with pauses of the same length.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator

_MEAN = 0.4  # seconds


@contextlib.contextmanager
def busy(programs: int, seed: int) -> Iterator[None]:
    """Run this many programs during the block."""
    command = [sys.executable, "-m", "benchmarks.benching.burning"]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    running = [
        subprocess.Popen([*command, str(seed + number)], env=environment) for number in range(programs)
    ]
    try:
        yield
    finally:
        for each in running:
            each.kill()
            each.wait()


def _burn(seed: int) -> None:
    import numpy as np

    chance, parent = random.Random(seed), os.getppid()
    large, small = np.ones(1 << 22), np.ones((96, 96), np.float32)
    works = (lambda: sum(range(20_000)), lambda: small @ small, lambda: large.sum())
    while os.getppid() == parent:
        work, ends = chance.choice(works), time.monotonic() + chance.expovariate(1 / _MEAN)
        while time.monotonic() < ends:
            work()
        time.sleep(chance.expovariate(1 / _MEAN))


if __name__ == "__main__":
    _burn(int(sys.argv[1]))
