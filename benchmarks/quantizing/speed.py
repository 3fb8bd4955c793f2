"""Measure the latencies of several files of one model in one process, in turns, so that load affects all alike.

python -m benchmarks.quantizing.speed SAMPLE ROUNDS MODEL...     # prints JSON: for each model the seconds per round
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.figures import Interval

_THREADS = 2
_WARM_UP = 3


def speed_ups(sample: Path, files: Sequence[Path], rounds: int) -> list[Interval]:
    """Return the speedup of each further file over the first: the median ratio of rounds, with its interval."""
    command = [sys.executable, "-m", "benchmarks.quantizing.speed", sample, rounds, *files]
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    first, *others = json.loads(run.stdout)
    return [Interval.of([a / b for a, b in zip(first, other, strict=True)]) for other in others]


def _seconds(sample: Path, rounds: int, files: Sequence[str]) -> list[list[float]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = _THREADS, 4
    sessions = [
        onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"]) for file in files
    ]
    with np.load(sample) as arrays:
        taken = {value.name for value in sessions[0].get_inputs()}
        feeds = {name: arrays[name] for name in arrays.files if name in taken}
    found: list[list[float]] = [[] for _ in files]
    for turn in range(_WARM_UP + rounds):
        for index in np.roll(np.arange(len(files)), turn):
            start = time.perf_counter()
            sessions[index].run(None, feeds)
            found[index].append(time.perf_counter() - start)
    return [each[_WARM_UP:] for each in found]


if __name__ == "__main__":
    print(json.dumps(_seconds(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])))
