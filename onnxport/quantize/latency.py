"""How long a model takes before and after on this CPU, in its own runtime: measured in rounds, told with an interval.

A round runs both models one right after the other, in turns which comes first, so that what slows the machine down
slows both; its ratio is one observation. The ratio told is the median of the rounds', and its interval lies between two
of them: which hold the true median with a probability that the binomial distribution tells, whatever the ratios are
distributed like (David and Nagaraja, *Order Statistics*, 7.1).
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.isolation import Child

Feeds = Mapping[str, np.ndarray[Any, np.dtype[Any]]]
Run = Callable[[], object]

# Seconds for warming up and all rounds. What is slower still has one round.
BUDGET = 1.8
# Seconds that either model takes in a round at the least, by being run more than once: a clock is no finer.
_LEAST = 0.002
_WARM = 0.1  # seconds, of either model
_MOST_ROUNDS = 150
_CONFIDENCE = 0.95
# Loading and one run of either model.
_TIMEOUT = 600.0
_SILENT = 4  # log severity "fatal"

OPTIMIZED = "optimized.onnx"


@dataclass(frozen=True)
class Times:
    """Seconds that one run took in every round, of the model before and of that after.

    Attributes:
        load: programs that wanted a core, for each that there is, over the last minute; 0 where that is not known.
    """

    before: tuple[float, ...]
    after: tuple[float, ...]
    runtime: str
    load: float = 0.0


@dataclass(frozen=True)
class Ratio:
    """How many times as fast the model after is.

    Attributes:
        value: the median over the rounds.
        low, high: the interval that holds the true median with probability `confidence`, which is 0 of one round.
    """

    value: float
    low: float
    high: float
    confidence: float


def ratio(times: Times) -> Ratio:
    """The speed-up with its interval: of 95 % or a little more from six rounds on, of what there is below."""
    found = sorted(before / after for before, after in zip(times.before, times.after, strict=True))
    rank, confidence = _rank(len(found))
    return Ratio(statistics.median(found), found[rank - 1], found[-rank], confidence)


def _rank(count: int) -> tuple[int, float]:
    """The k for which the k-th smallest and k-th largest of `count` hold the median, and how probably."""
    rank, outside = 1, 2.0 ** (1 - count)
    while True:
        further = outside + 2.0 ** (1 - count) * math.comb(count, rank)
        if rank + 1 > count // 2 or further > 1 - _CONFIDENCE:
            return rank, max(0.0, 1.0 - outside)
        rank, outside = rank + 1, further


def measured(before: Path, after: Path, feeds: Feeds, folder: Path | None = None) -> Times:
    """Times both models on `feeds` in a process of its own.

    Args:
        before, after: `.onnx`, `.ort` or `.tflite` files, each run by its own runtime.
        folder: gets the graph that ONNX Runtime makes of an `.onnx` file after, as OPTIMIZED.

    Raises:
        MachineError: the process crashed or hung.
        OnnxportError, ChildBug: the runtime refuses a model or the inputs.
    """
    with Child(f"{__name__}:Stopwatch", purpose="the measuring of latency", timeout=_TIMEOUT) as child:
        times: Times = child.call("times", before, after, dict(feeds), folder)
    return times


class Stopwatch:
    """The child's side."""

    def times(self, before: Path, after: Path, feeds: Feeds, folder: Path | None) -> Times:
        """See `measured`."""
        sides = [_side(before, feeds), _side(after, feeds, folder and folder / OPTIMIZED)]
        runs = [run for run, _ in sides]
        name = " and ".join(dict.fromkeys(name for _, name in sides))
        ends = time.perf_counter() + BUDGET
        first = [_seconds(run) for run in runs]
        if time.perf_counter() > ends:
            return Times((first[0],), (first[1],), name, _load())
        repeats = [_warmed(run, ends) for run in runs]
        rounds: list[list[float]] = []
        while not rounds or (len(rounds) < _MOST_ROUNDS and time.perf_counter() < ends):
            order = (0, 1) if len(rounds) % 2 else (1, 0)
            taken = {which: _seconds(runs[which], repeats[which]) for which in order}
            rounds.append([taken[0], taken[1]])
        return Times(tuple(each[0] for each in rounds), tuple(each[1] for each in rounds), name, _load())


def _side(path: Path, feeds: Feeds, optimized: Path | None = None) -> tuple[Run, str]:
    """What runs a model on `feeds`, and who that is."""
    if path.suffix.lower() == ".tflite":
        return _in_litert(path, feeds)
    import onnxruntime

    session = _session(path, optimized)
    taken = {each.name for each in session.get_inputs()}
    fed = {name: array for name, array in feeds.items() if name in taken}
    return partial(session.run, None, fed), f"ONNX Runtime {onnxruntime.__version__}"


def _in_litert(path: Path, feeds: Feeds) -> tuple[Run, str]:
    """As the judge runs it: XNNPACK, and the threads of RuntimeOptions, since LiteRT's own default is one."""
    from onnxport.validate.runtimes import load
    from onnxport.validate.runtimes.options import RuntimeOptions
    from onnxport.validate.signature import Oriented

    options = RuntimeOptions()
    runtime = load(path, options)
    seen = Oriented(runtime)
    taken = {each.name for each in seen.inputs}
    fed = {name: array for name, array in feeds.items() if name in taken}
    return partial(seen.run, fed), f"{runtime.name}, {options.threads} threads"


def _session(path: Path, optimized: Path | None = None) -> Any:
    """A session as a user has it who sets nothing, but for threads that end their waiting with the run."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = _SILENT
    # Else those of one model, waiting for more to do, take the cores from the other.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    if optimized is not None and path.suffix.lower() == ".onnx":
        options.optimized_model_filepath = os.fspath(optimized)
        # A graph may have more weights than protobuf holds.
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_file_name", f"{optimized.name}.data"
        )
    return onnxruntime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])


def _load() -> float:
    return os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else 0.0


def _seconds(run: Run, repeats: int = 1) -> float:
    """Of one run."""
    started = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - started) / repeats


def _warmed(run: Run, ends: float) -> int:
    """How often to run a model in a round, once its caches are filled."""
    times: list[float] = []
    started = time.perf_counter()
    while not times or time.perf_counter() < min(ends, started + _WARM):
        times.append(_seconds(run))
    return max(1, math.ceil(_LEAST / statistics.median(times)))


def milliseconds(times: Sequence[float]) -> float:
    """Milliseconds in the middle of `times`."""
    return 1000 * statistics.median(times)
