"""The regression gate: compare rows with those of a baseline, or with an earlier model measured beside them.

A baseline's figures need a correction for the machine's state then; an earlier model runs in turns with the new one.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from onnxport.bench import baseline
from onnxport.bench.baseline import Baseline
from onnxport.bench.comparison import ENOUGH_TURNS, Comparison, Conditions, compare, compare_rows, had_cores
from onnxport.bench.params import BenchParams
from onnxport.bench.plan import Planned, plan_rows
from onnxport.bench.report import Floor, Machine, Row, Settings
from onnxport.bench.session import Session, Stop, Trial
from onnxport.core.errors import UsageError
from onnxport.formats.artifact import FORMATS, Artifact

Plan = Callable[[Sequence[Artifact], BenchParams], Sequence[Planned]]

LIMIT = 1.10
# Most seconds of further measuring; without a baseline only from this number of runs on.
_PATIENCE = 6.0
_LEAST_RUNS = 100
# Of floors of the same session.
_SAME = Conditions(others=None)
# Rounds between two decisions whether to go on.
_EVERY = 10


class Gate:
    """Decides how long to measure and which rows fail; this one has no limit and fails none."""

    beside: tuple[Artifact, ...] = ()  # further artefacts to measure

    def until(self, enough: Stop, params: BenchParams) -> Stop:
        """Return the rule that ends a session: `enough`, or later on a busy machine."""
        seconds = _PATIENCE if params.runs >= _LEAST_RUNS else 0.0
        return _extend(enough, _is_steady, seconds if params.patience is None else params.patience)

    def judge(self, rows: Sequence[Row], at: Conditions) -> tuple[Row, ...]:
        """Return the rows with their comparisons."""
        return tuple(rows)

    def rows_to_repeat(self, rows: Sequence[Row]) -> tuple[Row, ...]:
        """Return the slower rows, which are measured again in fresh processes.

        A process can be slow because of its place in memory, and a host because of its other guests.
        """
        return tuple(row for row in rows if row.against is not None and row.against.standing == "slower")

    def notes(self, rows: Sequence[Row], versions: Mapping[str, str]) -> tuple[str, ...]:
        """Return sentences about the comparison."""
        return ()


def keep_faster(rows: Sequence[Row], again: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows; of those measured again, the faster measurement."""

    def ratio(row: Row) -> float:
        ratio = row.against.ratio if row.against is not None else None
        return math.inf if ratio is None else ratio

    second = {row.key: row for row in again}
    return tuple(min(row, second.get(row.key, row), key=ratio) for row in rows)


def describe_repeat(artifacts: Sequence[str]) -> str:
    """Return the note on artefacts that were measured twice."""
    were = "was" if len(artifacts) == 1 else "were"
    return (
        f"{', '.join(artifacts)} {were} slower than the limit and {were} measured again in fresh processes; "
        "the faster measurement counts"
    )


def make_gate(
    artifacts: Sequence[Artifact], params: BenchParams, machine: Machine, plan: Plan = plan_rows
) -> Gate:
    """Return the gate for `--against`; `plan` tells the rows of a bench on this `machine`.

    Raises:
        InputError: the file is neither a baseline nor a model.
        UsageError: a limit without a baseline; a baseline of another machine, or of other rows.
    """
    if params.against is None:
        if params.max_slowdown is not None or params.force:
            option = "--force" if params.force else "--max-slowdown"
            raise UsageError(f"{option} needs --against", fix="add --against baseline.json")
        return Gate()
    limit = LIMIT if params.max_slowdown is None else params.max_slowdown
    if params.against.suffix.lower() in FORMATS:
        return _ModelGate(artifacts, Artifact.open(params.against), limit)
    return _BaselineGate(plan(artifacts, params), params, machine, limit)


class _LimitGate(Gate, ABC):
    """A gate with a limit."""

    def __init__(self, limit: float) -> None:
        self._limit = limit

    def until(self, enough: Stop, params: BenchParams) -> Stop:

        def is_decided(session: Session) -> bool:
            found = [self._compare(trial, session) for trial in session.running]
            return all(each is None or each.is_decided(self._limit) for each in found)

        return _extend(enough, is_decided, _PATIENCE if params.patience is None else params.patience)

    @abstractmethod
    def _compare(self, trial: Trial, session: Session) -> Comparison | None:
        """Compare a trial; None where there is nothing to compare with."""


class _BaselineGate(_LimitGate):
    """Compares with the JSON of an earlier bench."""

    def __init__(self, rows: Sequence[Planned], params: BenchParams, machine: Machine, limit: float) -> None:
        super().__init__(limit)
        assert params.against is not None
        report = baseline.read(params.against)
        if not params.force:
            baseline.check_machine(params.against, report, machine)
        self._differences = tuple(baseline.differences(report, machine))
        self._baseline = Baseline(report, params.against, limit)
        self._baseline.check([(str(row.artifact.path), row.settings) for row in rows])

    def judge(self, rows: Sequence[Row], at: Conditions) -> tuple[Row, ...]:
        return tuple(row.model_copy(update={"against": self._baseline.standard(row, at)}) for row in rows)

    def notes(self, rows: Sequence[Row], versions: Mapping[str, str]) -> tuple[str, ...]:
        forced = [f"compared with figures of another machine: {each}" for each in self._differences]
        changes = baseline.version_changes(self._baseline.report.versions, versions)
        unknown = baseline.note_unknown_machine(self._baseline.path, self._baseline.report)
        return (*forced, *unknown, *changes, *self._baseline.missing(rows))

    def _compare(self, trial: Trial, session: Session) -> Comparison | None:
        subject = trial.subject
        return self._baseline.compare(str(subject.path), subject.settings, trial.floor, _conditions(session))


class _ModelGate(_LimitGate):
    """Compares with an earlier model, which runs in turns with the new one."""

    def __init__(self, artifacts: Sequence[Artifact], model: Artifact, limit: float) -> None:
        super().__init__(limit)
        if any(model.path.resolve() == artifact.path.resolve() for artifact in artifacts):
            raise UsageError(
                f"{model.path} is both the model and its baseline",
                fix="give the earlier file with --against, or the JSON of an earlier bench",
            )
        self.beside = (model,)
        self._path = model.path

    def judge(self, rows: Sequence[Row], at: Conditions) -> tuple[Row, ...]:
        earlier = {_shared_settings(row.settings): row for row in rows if row.artifact == str(self._path)}
        found = []
        for row in rows:
            before = earlier.get(_shared_settings(row.settings))
            if row.artifact != str(self._path) and before is not None:
                compared = compare_rows(row, before, _SAME, _SAME)
                if compared is not None:
                    row = row.model_copy(update={"against": compared.standard(self._limit)})
            found.append(row)
        return tuple(found)

    def _compare(self, trial: Trial, session: Session) -> Comparison | None:
        if trial.subject.path == self._path:
            return None
        settings = trial.subject.settings
        for other in (each for each in session.running if each.subject.path == self._path):
            if _shared_settings(other.subject.settings) == _shared_settings(settings):
                return _compare_now(trial.floor, other.floor, settings)
        return None


def _shared_settings(settings: Settings) -> tuple[object, ...]:
    """Return the settings that two models, perhaps of two formats, need in common."""
    return settings.threads, settings.batch


def _compare_now(now: Floor, before: Floor, settings: Settings) -> Comparison:
    return compare(now, before, _SAME, _SAME, threads=settings.threads)


def _extend(enough: Stop, is_decided: Callable[[Session], bool], seconds: float) -> Stop:
    """Return a rule that ends where `enough` does, or up to `seconds` later while `is_decided` is false."""
    ends: list[float] = []

    def stop(session: Session) -> bool:
        if not enough(session):
            return False
        if not ends:
            ends.append(time.monotonic() + seconds)
            return is_decided(session)
        if time.monotonic() >= ends[0]:
            return True
        return session.rounds % _EVERY == 0 and is_decided(session)

    return stop


def _conditions(session: Session) -> Conditions:
    return Conditions(session.pace.least_ms, session.pace.others)


def _is_steady(session: Session) -> bool:
    """Return whether every floor is good enough to compare later runs with."""

    def has_steady_floor(trial: Trial) -> bool:
        floor, threads = trial.floor, trial.subject.settings.threads
        return floor.turns >= 2 * ENOUGH_TURNS and (threads == 1 or had_cores(floor, threads))

    return _conditions(session).is_calm or all(map(has_steady_floor, session.running))
