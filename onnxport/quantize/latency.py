"""Latency before and after quantization on this CPU, measured in rounds, with an interval.

A round runs both models one right after the other, so that what slows the machine down slows both; its ratio is one
observation. The reported ratio is the median of the rounds', its interval two order statistics that hold the true
median with a binomial probability, whatever the distribution (David and Nagaraja, *Order Statistics*, 7.1).
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onnxport.bench.report import Settings
from onnxport.bench.session import Session, Subject, Trial
from onnxport.bench.statistics import median_interval
from onnxport.core.arrays import Feeds
from onnxport.formats.artifact import TensorSpec
from onnxport.runtimes.options import RuntimeOptions

# Seconds for warming up and all rounds. What is slower still has one round.
BUDGET = 1.8
_ROUNDS = 6  # of which 95 % can be said
_MOST_ROUNDS = 150
# Loading and one run of either model.
_TIMEOUT = 600.0

OPTIMIZED = "optimized.onnx"


@dataclass(frozen=True)
class Start:
    """The start of the model after: seconds, and bytes that runtime and model add to a bare process."""

    loading: float
    first: float
    second: float | None  # None where one run took all the time there was
    memory: int


@dataclass(frozen=True)
class Times:
    """Seconds per run in every round, before and after."""

    before: tuple[float, ...]
    after: tuple[float, ...]
    runtime: str
    # Programs that wanted a core, for each that there is, over the last minute; 0 where that is not known.
    load: float = 0.0
    start: Start | None = None


@dataclass(frozen=True)
class Speedup:
    """The speedup and its interval."""

    value: float  # the median over the rounds
    # low, high: the interval that holds the true median with probability `confidence`, which is 0 of one
    # round.
    low: float
    high: float
    confidence: float


def speedup(times: Times) -> Speedup:
    """Return the speedup with its interval: at least 95 % from six rounds on."""
    found = [before / after for before, after in zip(times.before, times.after, strict=True)]
    interval = median_interval(found)
    return Speedup(statistics.median(found), interval.low, interval.high, interval.confidence)


def measure_latency(before: Path, after: Path, feeds: Feeds, folder: Path | None = None) -> Times:
    """Time both models on `feeds`, each in its own process, in rounds (bench/session.py).

    Args:
        before, after: `.onnx`, `.ort` or `.tflite` files, each run by its own runtime.
        feeds: by the source's names; those that a model lacks are left out.
        folder: gets ONNX Runtime's graph of an `.onnx` file after, as OPTIMIZED.

    Raises:
        MachineError: a process crashed or hung.
        OnnxportError, ChildBug: the runtime refuses a model or the inputs.
    """

    def feeding(specs: Sequence[TensorSpec]) -> Feeds:
        return {spec.name: feeds[spec.name] for spec in specs if spec.name in feeds}

    optimized = folder / OPTIMIZED if folder is not None and after.suffix.lower() == ".onnx" else None
    sides = [
        Subject(before, _settings(before), feeding),
        Subject(after, _settings(after), feeding, optimized),
    ]
    with Session(sides, timeout=_TIMEOUT) as session:
        session.load()
        session.feed()
        _check(session)
        first = sum(trial.first for trial in session.trials)
        ends = time.monotonic() + BUDGET - first
        if first > BUDGET:
            session.run(lambda _: True)  # reads the memory only
            _check(session)
            return _times(session, [(trial.first,) for trial in session.trials])
        session.warm_up(1)
        session.run(lambda rounds: rounds.rounds > 0 and _has_enough_rounds(rounds, ends))
        _check(session)
        return _times(
            session, [tuple(statistics.fmean(turn.times) for turn in trial.turns) for trial in session.trials]
        )


def _settings(path: Path) -> Settings:
    """Return the runtime's defaults, except for LiteRT's threads, whose default is one."""
    if path.suffix.lower() == ".tflite":
        return Settings(runtime="litert", threads=RuntimeOptions().threads)
    return Settings(runtime="ort")


def _has_enough_rounds(session: Session, ends: float) -> bool:
    """Decide whether there are enough rounds; a busy machine needs time to warm up."""
    now = time.monotonic()
    late = now >= ends and (session.rounds >= _ROUNDS or now >= ends + BUDGET)
    return late or session.rounds >= _MOST_ROUNDS


def _check(session: Session) -> None:
    """Raise what stopped a model from being timed."""
    for trial in session.trials:
        if trial.failure is not None:
            raise trial.failure.error


def _times(session: Session, seconds: Sequence[tuple[float, ...]]) -> Times:
    before, after = seconds
    names = (
        trial.ran_on + (f", {threads} threads" if (threads := trial.subject.settings.threads) else "")
        for trial in session.trials
    )
    load = os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else 0.0
    return Times(before, after, " and ".join(dict.fromkeys(names)), load, _start(session.trials[1]))


def _start(trial: Trial) -> Start:
    return Start(trial.loading, trial.first, trial.second, trial.peak - trial.bare)


def milliseconds(times: Sequence[float]) -> float:
    """Return the median of `times` in milliseconds."""
    return 1000 * statistics.median(times)
