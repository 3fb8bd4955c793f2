"""Two ways to run one model, timed in turns, so that disturbances hit both."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence

Run = Callable[[], object]

# Seconds of one turn, long enough that most of its runs find their own data in the caches.
_TURN = 0.003
_LEAST_TURNS = 5


def time_in_turns(
    first: Run, second: Run, runs: int, warmup: int, after: Run | None = None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the seconds of each of `runs` runs of both, after `warmup` runs of both.

    `after` is called after each timed run of `second`, outside its time.
    """
    warm = [time_run(run) for _ in range(warmup) for run in (first, second)]
    length = math.ceil(_TURN / max(statistics.median(warm), 1e-7)) if warm else 1
    length = max(1, min(length, math.ceil(runs / _LEAST_TURNS)))
    times: tuple[list[float], list[float]] = ([], [])
    turn = 0
    while len(times[0]) < runs:
        count = min(length, runs - len(times[0]))
        for which in (0, 1) if turn % 2 else (1, 0):
            for _ in range(count):
                times[which].append(time_run((first, second)[which]))
                if which and after is not None:
                    after()
        turn += 1
    return tuple(times[0]), tuple(times[1])


def faster_half(seconds: Sequence[float]) -> list[int]:
    """Return the places of the faster half: disturbances only make runs slower."""
    places = sorted(range(len(seconds)), key=lambda place: seconds[place])
    return places[: -(-len(seconds) // 2)]


def typical(seconds: Sequence[float]) -> float:
    """Return the seconds of an undisturbed run: the mean of the faster half."""
    return statistics.fmean(seconds[place] for place in faster_half(seconds))


def time_run(run: Run) -> float:
    """Return the seconds of one run."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
