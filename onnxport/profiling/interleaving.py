"""Two ways to run one model, timed in turns: what slows the machine down slows both."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence

Run = Callable[[], object]

# Seconds that one of the two goes on before the other has its turn: caches are its own for most of that.
_TURN = 0.003
_LEAST_TURNS = 5


def time_in_turns(
    first: Run, second: Run, runs: int, warmup: int, after: Run | None = None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Seconds of each of `runs` runs of both, after `warmup` of both.

    Args:
        after: what is called after each of those runs of `second`, and not timed.
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
    """The places of the faster half: what disturbs a run makes it slower."""
    places = sorted(range(len(seconds)), key=lambda place: seconds[place])
    return places[: -(-len(seconds) // 2)]


def typical(seconds: Sequence[float]) -> float:
    """Seconds of an undisturbed run: the mean of the faster half."""
    return statistics.fmean(seconds[place] for place in faster_half(seconds))


def time_run(run: Run) -> float:
    """Seconds of one run."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
