"""Models against each other: each in a process of its own, all alive, running in turns with nobody else running.

    with Contest(contestants) as contest:
        contest.load()                       # one after the other: imports and model
        contest.feed()                       # the same: inputs and the first run
        contest.warm_up(runs=10)
        contest.run(until=rounds(20))        # a round gives everybody a turn, in another order each time
        for lane in contest.lanes: ...       # figures, or why there are none

A drift of the machine hits all alike, since each round is a few milliseconds of everybody. One who crashes, hangs or is
refused leaves the contest with the reason (`Lane.failure`); the others go on.
"""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxport.bench.floors import floor_of
from onnxport.bench.loaders.base import Chosen
from onnxport.bench.pace import Pace
from onnxport.bench.ports import Ports, ports_of, read, written
from onnxport.bench.providers import TITLES
from onnxport.bench.report import Floor, Settings, Status
from onnxport.bench.statistics import median
from onnxport.core.arrays import Array, Feeds
from onnxport.core.child_process import RUN_TIMEOUT, Child, ChildHung
from onnxport.core.errors import MachineError, MissingDependencyError, OnnxportError
from onnxport.core.resources import Closing
from onnxport.formats.artifact import TensorSpec

# What a model is fed, given what it takes.
Feeding = Callable[[Sequence[TensorSpec]], Feeds]
# Whether a contest, asked after every round, has come to its end.
Stop = Callable[["Contest"], bool]

ROUNDS = 20
_LEAST = 0.005  # seconds of a turn, by more runs of a fast model: then no clock and no message is too coarse
_MOST = 0.5  # seconds of a turn of more than one run
_SETTLING = 0.002  # seconds before it: caches that others filled, threads that sleep
_UNSETTLED = 0.02  # seconds; a run that takes longer hardly notices
_WARM = 0.1  # seconds of warming up at the least,
_MANY = 1000  # or runs
_INSTANT = 1e-7  # seconds; no run takes less
_TARGET = "onnxport.bench.worker:Runner"
_PATIENCE = "give it more time with --timeout SECONDS, or smaller inputs"


@dataclass(frozen=True)
class Contestant:
    """Who is measured.

    Attributes:
        path: the model's file or folder.
        settings: under which it runs; `batch` is the feeding's affair.
        feeding: gives the inputs, in the source's names and axes.
        optimized: where ONNX Runtime is to write the graph that it makes of an `.onnx` file; None for nowhere.
    """

    path: Path
    settings: Settings
    feeding: Feeding
    optimized: Path | None = None


@dataclass(frozen=True)
class Failure:
    """Why there are no figures."""

    status: Status
    error: OnnxportError


@dataclass
class Turn:
    """One contestant's part of a round.

    Attributes:
        times: seconds of each run.
        joules: of all of them; None where nobody tells.
        cpu: seconds that each of them spent on cores, all threads together.
    """

    times: list[float]
    joules: float | None
    cpu: list[float]


@dataclass
class Lane:
    """A contestant with all that was measured; times in seconds, memory in bytes."""

    contestant: Contestant
    failure: Failure | None = None
    ran_on: str = ""
    ports: Ports | None = None
    feeds: Feeds = field(default_factory=dict)
    bare: int = 0
    imported: int = 0
    loaded: int = 0
    peak: int = 0
    importing: float = 0.0
    loading: float = 0.0
    first: float = 0.0
    runs: int = 1  # of a turn
    settling: int = 0  # runs before a turn's
    turns: list[Turn] = field(default_factory=list)
    spent: float = 0.0  # on cores, since the process began

    @property
    def floor(self) -> Floor:
        """What a run takes when nobody is in its way; there have been turns."""
        return floor_of([(turn.times, turn.cpu) for turn in self.turns])

    @property
    def times(self) -> list[float]:
        """Seconds of every run that was timed."""
        return [each for turn in self.turns for each in turn.times]


class Contest(Closing):
    """Contestants and their processes.

    Args:
        contestants: in the order of the lanes.
        timeout: seconds that loading, or one run, may take.
        heard: is told how much of `load` and `warm_up` is done.
    """

    def __init__(
        self,
        contestants: Sequence[Contestant],
        *,
        timeout: float = RUN_TIMEOUT,
        heard: Callable[[int, int], None] = lambda done, of: None,
    ) -> None:
        self.lanes = tuple(Lane(each) for each in contestants)
        self.rounds = 0
        self.pace = Pace()
        self._timeout, self._heard = timeout, heard
        self._children: dict[int, Child] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="onnxport-")

    @property
    def running(self) -> tuple[Lane, ...]:
        """Those that have not left."""
        return tuple(lane for lane in self.lanes if lane.failure is None)

    def load(self) -> None:
        """Starts everybody's process and loads its model, one after the other: then its ports are known."""
        for number, lane in enumerate(self.lanes):
            self._heard(number, len(self.lanes))
            with self._leaving(lane):
                self._begin(lane)

    def feed(self) -> None:
        """Gives everybody its inputs and runs it for the first time, one after the other."""
        for _, lane in self._runners():
            with self._leaving(lane):
                self._feed(lane)

    def warm_up(self, runs: int, least: int = 1) -> None:
        """Runs everybody `runs` times and for a tenth of a second at the least, and sees how long its turns are to be.

        Args:
            least: runs of a turn.
        """
        for number, lane in self._runners():
            self._heard(number, len(self.lanes))
            with self._leaving(lane):
                self._warm(lane, runs, least)

    def round(self) -> None:
        """Gives everybody a turn, in an order of its own."""
        order = list(self._runners())
        random.Random(self.rounds).shuffle(order)
        for _, lane in order:
            with self._leaving(lane):
                lane.turns.append(self._turn(lane, lane.runs, lane.settling))
        self.rounds += 1
        self.pace.read(sum(lane.spent for lane in self.running))

    def run(self, until: Stop) -> None:
        """Goes on with rounds until that says so, or nobody is left."""
        while self.running and not until(self):
            self.round()
        for _, lane in self._runners():
            with self._leaving(lane):
                lane.peak = self._call(lane, "memory")

    def answers(self, lane: Lane) -> dict[str, Array]:
        """What the model of `lane`, which is running, answers to its feeds, in the source's names and axes.

        Raises:
            OnnxportError: it does not; the contest is not its concern any more.
        """
        assert lane.ports is not None
        with tempfile.TemporaryDirectory(dir=self._folder.name) as folder:
            return lane.ports.leaving(read(self._call(lane, "answers", folder)))

    def close(self) -> None:
        """Ends all processes."""
        while self._children:
            self._children.popitem()[1].close()
        self._folder.cleanup()

    def _begin(self, lane: Lane) -> None:
        path, settings = lane.contestant.path, lane.contestant.settings
        self._children[id(lane)] = Child(
            _TARGET,
            purpose=f"{TITLES.get(settings.runtime, settings.runtime)} running {path}",
            timeout=self._timeout,
            patience=_PATIENCE,
        )
        required = self._call(lane, "require", settings.runtime)
        lane.bare, lane.imported, lane.importing = required["bare"], required["imported"], required["seconds"]
        optimized = str(lane.contestant.optimized) if lane.contestant.optimized is not None else None
        chosen = Chosen(
            provider=settings.provider, threads=settings.threads, level=settings.level, optimized=optimized
        )
        loaded = self._call(lane, "load", str(path), chosen)
        lane.loading, lane.ran_on = loaded["seconds"], loaded["ran_on"]
        lane.ports = ports_of(settings.runtime, path, loaded["inputs"], loaded["outputs"])

    def _feed(self, lane: Lane) -> None:
        assert lane.ports is not None
        lane.feeds = lane.contestant.feeding(lane.ports.inputs)
        with tempfile.TemporaryDirectory(dir=self._folder.name) as folder:
            fed = self._call(lane, "feed", written(lane.ports.entering(lane.feeds), folder))
        lane.loading += fed["ready"]
        lane.loaded, lane.first = fed["loaded"], fed["first"]

    def _warm(self, lane: Lane, runs: int, least: int) -> None:
        done, taken, estimate = 0, 0.0, max(lane.first, _INSTANT)
        while done < runs or (taken < _WARM and done < _MANY):
            wanted = max(runs - done, math.ceil((_WARM - taken) / estimate))
            share = max(1, min(wanted, _MANY, int(_MOST / estimate)))
            turn = self._turn(lane, share, 0)
            done, taken = done + share, taken + sum(turn.times)
            estimate = max(median(turn.times), _INSTANT)
        most = max(1, int(_MOST / estimate))
        lane.runs = min(max(least, math.ceil(_LEAST / estimate)), most)
        lane.settling = 0 if estimate > _UNSETTLED else math.ceil(_SETTLING / estimate)

    def _turn(self, lane: Lane, runs: int, settling: int) -> Turn:
        found = self._call(lane, "turn", runs, settling)
        lane.spent = found["spent"] * 1e-9
        times, cpu = ([each * 1e-9 for each in found[name]] for name in ("times", "cpu"))
        return Turn(times, found["joules"], cpu)

    def _call(self, lane: Lane, method: str, *args: object) -> Any:
        return self._children[id(lane)].call(method, *args)

    def _runners(self) -> Iterator[tuple[int, Lane]]:
        for number, lane in enumerate(self.lanes):
            if lane.failure is None:
                yield number, lane

    @contextmanager
    def _leaving(self, lane: Lane) -> Iterator[None]:
        """Takes a contestant out of the contest that fails in the block."""
        try:
            yield
        except OnnxportError as error:
            lane.failure = Failure(_status(error), error)
            if child := self._children.pop(id(lane), None):
                child.close()


def rounds(count: int = ROUNDS) -> Stop:
    """Ends a contest after `count` rounds."""
    return lambda contest: contest.rounds >= count


def enough(runs: int) -> Stop:
    """Ends a contest when everybody has at least `runs` timed runs, in ROUNDS rounds unless these are fewer."""
    return lambda contest: (
        contest.rounds >= min(ROUNDS, runs)
        and all(len(lane.turns) * lane.runs >= runs for lane in contest.running)
    )


def _status(error: OnnxportError) -> Status:
    kinds: Mapping[type[OnnxportError], Status] = {
        MissingDependencyError: "not here",
        ChildHung: "hung",
        MachineError: "crashed",
    }
    return next((status for kind, status in kinds.items() if isinstance(error, kind)), "refused")
