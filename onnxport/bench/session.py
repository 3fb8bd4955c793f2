"""A session measures models in turns, each in a process of its own, so that only one of them runs at a time.

    with Session(subjects) as session:
        session.load()                      # one after the other: imports and model
        session.feed()                      # inputs and the first run
        session.warm_up(runs=10)
        session.run(until=rounds(20))       # a round gives each a turn, in another order each time
        for trial in session.trials: ...    # figures, or the reason why there are none

Rounds are short, so a drift of the machine affects all alike. A subject that crashes, hangs or is refused leaves the
session with the reason (`Trial.failure`); the others continue.
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

from onnxport.bench.loaders.base import Chosen
from onnxport.bench.pace import Pace
from onnxport.bench.ports import Ports, load_arrays, ports_of, save_arrays
from onnxport.bench.providers import TITLES
from onnxport.bench.report import Floor, Settings, Status
from onnxport.bench.statistics import floor_of, median
from onnxport.core.arrays import Array, Feeds
from onnxport.core.child_process import RUN_TIMEOUT, Child, ChildHung
from onnxport.core.errors import MachineError, MissingDependencyError, OnnxportError
from onnxport.core.resources import Closing
from onnxport.core.scratch import ScratchFolder
from onnxport.formats.artifact import TensorSpec
from onnxport.runtimes.custom_libraries import writable

# Makes the feeds of a model with these inputs.
Feeding = Callable[[Sequence[TensorSpec]], Feeds]
# Returns after every round whether the session ends.
Stop = Callable[["Session"], bool]

ROUNDS = 20
_SHORTEST_TURN = 0.005  # seconds; a fast model has more runs, so that the clock is precise enough
_LONGEST_TURN = 0.5  # seconds, unless one run takes longer
_SETTLING = 0.002  # seconds of untimed runs before a turn: caches that others filled, threads that sleep
_NEEDS_NO_SETTLING = 0.02  # seconds of a run
_WARM_UP = 0.1  # least seconds,
_WARM_UP_RUNS = 1000  # unless these are reached
_SHORTEST_RUN = 1e-7  # seconds
_TARGET = "onnxport.bench.worker:Runner"
_PATIENCE = "give it more time with --timeout SECONDS, or smaller inputs"


@dataclass(frozen=True)
class Subject:
    """A model to measure."""

    path: Path  # the model's file or folder
    settings: Settings  # of the run; `batch` is left to `feeding`
    feeding: Feeding  # makes the inputs, in the source's names and axes
    # Where ONNX Runtime writes its optimized graph of an `.onnx` file; None for nowhere.
    optimized: Path | None = None


@dataclass(frozen=True)
class Failure:
    """The reason why there are no figures."""

    status: Status
    error: OnnxportError


@dataclass
class Turn:
    """The runs of one subject in a round."""

    times: list[float]  # seconds of each run
    joules: float | None  # of all of them; None where the machine has no counter
    cpu: list[float]  # seconds on cores of each run, all threads together


@dataclass
class Trial:
    """A subject with its measurements; times in seconds, memory in bytes."""

    subject: Subject
    failure: Failure | None = None
    ran_on: str = ""
    remarks: tuple[str, ...] = ()  # the runtime's, for the report
    ports: Ports | None = None
    feeds: Feeds = field(default_factory=dict)
    bare: int = 0
    imported: int = 0
    loaded: int = 0
    peak: int = 0
    loading: float = 0.0
    first: float = 0.0
    second: float | None = None  # the first run of the warm-up
    runs: int = 1  # of a turn
    settling: int = 0  # untimed runs before a turn
    turns: list[Turn] = field(default_factory=list)
    spent: float = 0.0  # on cores, since the process started

    @property
    def floor(self) -> Floor:
        """The time of a run without interference; there have been turns."""
        return floor_of([(turn.times, turn.cpu) for turn in self.turns])

    @property
    def times(self) -> list[float]:
        """Seconds of every timed run."""
        return [each for turn in self.turns for each in turn.times]


class Session(Closing):
    """Subjects and their processes.

    Args:
        subjects: in the order of the trials.
        timeout: most seconds of loading, or of one run.
        on_progress: called with the progress of `load` and `warm_up`.
    """

    def __init__(
        self,
        subjects: Sequence[Subject],
        *,
        timeout: float = RUN_TIMEOUT,
        on_progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> None:
        self.trials = tuple(Trial(each) for each in subjects)
        self.rounds = 0
        self.pace = Pace()
        self._timeout, self._on_progress = timeout, on_progress
        self._children: dict[int, Child] = {}
        self._folder = ScratchFolder()

    @property
    def running(self) -> tuple[Trial, ...]:
        """The trials that have not failed."""
        return tuple(trial for trial in self.trials if trial.failure is None)

    def load(self) -> None:
        """Start each process and load its model, one after the other; then the ports are known."""
        for number, trial in enumerate(self.trials):
            self._on_progress(number, len(self.trials))
            with self._end_on_failure(trial):
                self._start(trial)

    def feed(self) -> None:
        """Feed each model its inputs and run it for the first time, one after the other."""
        for _, trial in self._runners():
            with self._end_on_failure(trial):
                self._feed(trial)

    def warm_up(self, runs: int, least: int = 1) -> None:
        """Run each model `runs` times and for at least 0.1 s, and choose its turns of `least` runs or more."""
        for number, trial in self._runners():
            self._on_progress(number, len(self.trials))
            with self._end_on_failure(trial):
                self._warm(trial, runs, least)

    def round(self) -> None:
        """Give each model a turn, in a random order."""
        order = list(self._runners())
        random.Random(self.rounds).shuffle(order)
        for _, trial in order:
            with self._end_on_failure(trial):
                trial.turns.append(self._turn(trial, trial.runs, trial.settling))
        self.rounds += 1
        self.pace.read(sum(trial.spent for trial in self.running))

    def run(self, until: Stop) -> None:
        """Measure rounds until `until` ends the session, or no model is left."""
        while self.running and not until(self):
            self.round()
        for _, trial in self._runners():
            with self._end_on_failure(trial):
                trial.peak = self._call(trial, "memory")

    def answers(self, trial: Trial, feeds: Feeds) -> dict[str, Array]:
        """Return a trial's outputs for `feeds`, as the source has them; an OnnxportError does not end it."""
        assert trial.ports is not None
        with (
            tempfile.TemporaryDirectory(dir=self._folder.name) as given,
            tempfile.TemporaryDirectory(dir=self._folder.name) as found,
        ):
            files = save_arrays(trial.ports.to_runtime(feeds), given)
            return trial.ports.to_source(load_arrays(self._call(trial, "answers", files, found)))

    def close(self) -> None:
        """End all processes."""
        while self._children:
            self._children.popitem()[1].close()
        self._folder.cleanup()

    def _start(self, trial: Trial) -> None:
        path, settings, optimized = trial.subject.path, trial.subject.settings, trial.subject.optimized
        self._children[id(trial)] = Child(
            _TARGET,
            purpose=f"{TITLES.get(settings.runtime, settings.runtime)} running {path}",
            timeout=self._timeout,
            patience=_PATIENCE,
            writes=writable(Path(self._folder.name), *([optimized.parent] if optimized is not None else [])),
        )
        required = self._call(trial, "require", settings.runtime)
        trial.bare, trial.imported = required["bare"], required["imported"]
        chosen = Chosen(
            provider=settings.provider,
            threads=settings.threads,
            level=settings.level,
            optimized=None if optimized is None else str(optimized),
        )
        loaded = self._call(trial, "load", str(path), chosen)
        trial.loading, trial.ran_on = loaded["seconds"], loaded["ran_on"]
        trial.remarks = tuple(loaded["remarks"])
        trial.ports = ports_of(settings.runtime, path, loaded["inputs"], loaded["outputs"])

    def _feed(self, trial: Trial) -> None:
        assert trial.ports is not None
        trial.feeds = trial.subject.feeding(trial.ports.inputs)
        with tempfile.TemporaryDirectory(dir=self._folder.name) as folder:
            fed = self._call(trial, "feed", save_arrays(trial.ports.to_runtime(trial.feeds), folder))
        trial.loading += fed["ready"]
        trial.loaded, trial.first = fed["loaded"], fed["first"]

    def _warm(self, trial: Trial, runs: int, least: int) -> None:
        done, taken, estimate = 0, 0.0, max(trial.first, _SHORTEST_RUN)
        while done < runs or (taken < _WARM_UP and done < _WARM_UP_RUNS):
            wanted = max(runs - done, math.ceil((_WARM_UP - taken) / estimate))
            share = max(1, min(wanted, _WARM_UP_RUNS, int(_LONGEST_TURN / estimate)))
            turn = self._turn(trial, share, 0)
            if not done:
                trial.second = turn.times[0]
            done, taken = done + share, taken + sum(turn.times)
            estimate = max(median(turn.times), _SHORTEST_RUN)
        most = max(1, int(_LONGEST_TURN / estimate))
        trial.runs = min(max(least, math.ceil(_SHORTEST_TURN / estimate)), most)
        trial.settling = 0 if estimate > _NEEDS_NO_SETTLING else math.ceil(_SETTLING / estimate)

    def _turn(self, trial: Trial, runs: int, settling: int) -> Turn:
        found = self._call(trial, "turn", runs, settling)
        trial.spent = found["spent"] * 1e-9
        times, cpu = ([each * 1e-9 for each in found[name]] for name in ("times", "cpu"))
        return Turn(times, found["joules"], cpu)

    def _call(self, trial: Trial, method: str, *args: object) -> Any:
        return self._children[id(trial)].call(method, *args)

    def _runners(self) -> Iterator[tuple[int, Trial]]:
        for number, trial in enumerate(self.trials):
            if trial.failure is None:
                yield number, trial

    @contextmanager
    def _end_on_failure(self, trial: Trial) -> Iterator[None]:
        """End a trial that fails in the block."""
        try:
            yield
        except OnnxportError as error:
            trial.failure = failed(error)
            if child := self._children.pop(id(trial), None):
                child.close()


def rounds(count: int = ROUNDS) -> Stop:
    """Return a rule that ends a session after `count` rounds."""
    return lambda session: session.rounds >= count


def enough(runs: int) -> Stop:
    """Return a rule that ends a session when each trial has `runs` timed runs, in at least ROUNDS or `runs` rounds."""
    return lambda session: (
        session.rounds >= min(ROUNDS, runs)
        and all(len(trial.turns) * trial.runs >= runs for trial in session.running)
    )


def failed(error: OnnxportError) -> Failure:
    """Return the failure of a row that ended with an error."""
    return Failure(_status(error), error)


def _status(error: OnnxportError) -> Status:
    kinds: Mapping[type[OnnxportError], Status] = {
        MissingDependencyError: "not here",
        ChildHung: "hung",
        MachineError: "crashed",
    }
    return next((status for kind, status in kinds.items() if isinstance(error, kind)), "refused")
