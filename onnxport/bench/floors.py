"""What a model takes when nobody is in its way: what two times on a busy machine can be compared by.

Other programs only ever add, so the low end of many runs is the model's own and the middle is the machine's. What the
low end is depends on how many threads the model has:

one: the time that passed in the fastest run; where the fastest ones of three turns do not agree, what it spent on its
core, if that is less: waiting for one is no part of that. A fifth of the turns lie below what is told of it; the least
of all is no good, since a system's books of who had which core are off by a few per cent either way.

several: the time that passed in the fastest run. Time on the cores says nothing here: threads that wait for one that
lost its core compute in circles, and a model that no longer spreads its work over all cores spends no more of it. That
all of them were to be had shows in the fastest runs, which kept that many of them busy (`Floor.cores`).
"""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Sequence

from onnxport.bench.report import Floor

_SHARE = 0.2
_Z = 1.96  # 95 %
_ALIKE = 3  # runs of different turns that a floor stands on
_FASTEST = 5  # runs
MILLI = 1000.0


def floor_of(turns: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Floor:
    """The floor of some turns, of which there is one at the least.

    Args:
        turns: of each the seconds that its runs took, and those that they spent on cores, all threads together.
    """
    fastest = sorted(min(times) for times, _ in turns)
    spent = sorted(sum(cpu) / len(cpu) for _, cpu in turns)
    runs = heapq.nsmallest(_FASTEST, (run for times, cpu in turns for run in zip(times, cpu, strict=True)))
    low, middle, high = _ranks(len(spent))
    return Floor(
        wall=_ms(fastest[0]),
        wall_next=_ms(fastest[min(_ALIKE, len(fastest)) - 1]),
        cpu=_ms(spent[middle]),
        cpu_low=_ms(spent[low]),
        cpu_high=_ms(spent[high]),
        cores=round(statistics.median(cpu / max(time, 1e-9) for time, cpu in runs), 3),
        turns=len(turns),
    )


def _ranks(count: int) -> tuple[int, int, int]:
    """Where in `count` sorted turns the share lies, and an interval that holds the true one: by the binomial
    distribution, which is taken for a normal one."""
    middle, spread = _SHARE * count, _Z * math.sqrt(count * _SHARE * (1 - _SHARE))
    last = count - 1
    return (
        max(0, math.floor(middle - spread)),
        min(last, max(0, math.ceil(middle) - 1)),
        min(last, math.ceil(middle + spread)),
    )


def _ms(seconds: float) -> float:
    return float(f"{MILLI * seconds:.6g}")
