"""How long a bench goes on: as many runs as were asked for, and longer where a busy machine has said too little yet."""

from __future__ import annotations

import time
from collections.abc import Callable

from onnxport.bench.comparison import ENOUGH, Conditions, had_cores
from onnxport.bench.engine import Contest, Lane, Stop

# Rounds between two looks at what there is.
_EVERY = 10


def patient(until: Stop, is_told: Callable[[Contest], bool], seconds: float) -> Stop:
    """Ends where `until` does, or up to `seconds` later, if `is_told` is false till then."""
    ends: list[float] = []

    def stop(contest: Contest) -> bool:
        if not until(contest):
            return False
        if not ends:  # for the first time
            ends.append(time.monotonic() + seconds)
            return is_told(contest)
        if time.monotonic() >= ends[0]:
            return True
        return contest.rounds % _EVERY == 0 and is_told(contest)

    return stop


def conditions(contest: Contest) -> Conditions:
    """What the machine was like during its rounds."""
    return Conditions(contest.pace.least_ms, contest.pace.others)


def is_steady(contest: Contest) -> bool:
    """Whether every floor is one that a later run can be compared with."""
    return conditions(contest).is_calm or all(map(_is_steady, contest.running))


def _is_steady(lane: Lane) -> bool:
    floor, threads = lane.floor, lane.contestant.settings.threads
    return floor.turns >= 2 * ENOUGH and (threads == 1 or had_cores(floor, threads))
