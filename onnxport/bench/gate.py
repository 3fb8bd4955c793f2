"""The regression gate: whether rows are slower than those of a baseline, or than an earlier model beside them.

A baseline is figures of another time, which have to be corrected for what the machine was like then; an earlier model
runs in turns with the new one, so that nothing has to be.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from onnxport.bench import baseline
from onnxport.bench.comparison import Baseline, Comparison, Conditions, compare
from onnxport.bench.engine import Contest, Lane, Stop
from onnxport.bench.params import BenchParams
from onnxport.bench.plan import planned
from onnxport.bench.report import Floor, Machine, Row, Settings
from onnxport.bench.stop_rule import conditions, is_steady, patient
from onnxport.core.errors import UsageError
from onnxport.formats.artifact import FORMATS, Artifact

LIMIT = 1.10
# Seconds of further measuring, and the runs below which a bench that is held against nothing has none of it.
_PATIENCE = 6.0
_LEAST_RUNS = 100


class Gate:
    """What rows are held against; this one holds them against nothing.

    Attributes:
        beside: what else has to be measured.
    """

    beside: tuple[Artifact, ...] = ()

    def until(self, enough: Stop, params: BenchParams) -> Stop:
        """When a contest is over that `enough` would end."""
        seconds = _PATIENCE if params.runs >= _LEAST_RUNS else 0.0
        return patient(enough, is_steady, seconds if params.patience is None else params.patience)

    def judged(self, rows: Sequence[Row], at: Conditions) -> tuple[Row, ...]:
        """The rows, each with its standing."""
        return tuple(rows)

    def doubted(self, rows: Sequence[Row]) -> tuple[Row, ...]:
        """Those that are to be measured again in fresh processes before anybody is told: a process can be slow by where
        its memory lies, and a host by what its other guests do, for as long as both of them last."""
        return tuple(row for row in rows if row.against is not None and row.against.standing == "slower")

    def notes(self, rows: Sequence[Row], versions: Mapping[str, str]) -> tuple[str, ...]:
        """What else there is to say of a comparison."""
        return ()


def confirmed(rows: Sequence[Row], again: Sequence[Row]) -> tuple[Row, ...]:
    """The rows, of those that were measured again the measurement that took less."""

    def ratio(row: Row) -> float:
        ratio = row.against.ratio if row.against is not None else None
        return math.inf if ratio is None else ratio

    second = {row.key: row for row in again}
    return tuple(min(row, second.get(row.key, row), key=ratio) for row in rows)


def gate_of(artifacts: Sequence[Artifact], params: BenchParams, machine: Machine) -> Gate:
    """What `--against` asks for.

    Raises:
        InputError: it is no baseline and no model.
        UsageError: a limit without a baseline; a baseline of another machine, or of nothing that is to be measured.
    """
    if params.against is None:
        if params.max_slowdown is not None or params.force:
            option = "--force" if params.force else "--max-slowdown"
            raise UsageError(f"{option} says nothing without --against", fix="add --against baseline.json")
        return Gate()
    limit = LIMIT if params.max_slowdown is None else params.max_slowdown
    if params.against.suffix.lower() in FORMATS:
        return _Beside(artifacts, Artifact.open(params.against), limit)
    return _Saved(artifacts, params, machine, limit)


class _Judging(Gate, ABC):
    """A gate with a limit."""

    def __init__(self, limit: float) -> None:
        self._limit = limit

    def until(self, enough: Stop, params: BenchParams) -> Stop:
        """See Gate."""

        def is_told(contest: Contest) -> bool:
            found = [self._of_lane(lane, contest) for lane in contest.running]
            return all(each is None or each.is_settled(self._limit) for each in found)

        return patient(enough, is_told, _PATIENCE if params.patience is None else params.patience)

    @abstractmethod
    def _of_lane(self, lane: Lane, contest: Contest) -> Comparison | None:
        """None of what there is nothing to compare with."""


class _Saved(_Judging):
    """Against the JSON of an earlier bench."""

    def __init__(
        self, artifacts: Sequence[Artifact], params: BenchParams, machine: Machine, limit: float
    ) -> None:
        super().__init__(limit)
        assert params.against is not None
        report = baseline.read(params.against)
        if not params.force:
            baseline.check_machine(params.against, report.machine, machine)
        self._differs = tuple(baseline.differences(report.machine, machine))
        self._then = Baseline(report, params.against, limit)
        self._then.check([(str(plan.artifact.path), plan.settings) for plan in planned(artifacts, params)])

    def judged(self, rows: Sequence[Row], at: Conditions) -> tuple[Row, ...]:
        """See Gate."""
        return tuple(row.model_copy(update={"against": self._then.standard(row, at)}) for row in rows)

    def notes(self, rows: Sequence[Row], versions: Mapping[str, str]) -> tuple[str, ...]:
        """See Gate."""
        forced = [f"compared with another machine's figures, {each}" for each in self._differs]
        return (*forced, *baseline.renewed(self._then.report.versions, versions), *self._then.gone(rows))

    def _of_lane(self, lane: Lane, contest: Contest) -> Comparison | None:
        asked = lane.contestant
        return self._then.compared(str(asked.path), asked.settings, lane.floor, conditions(contest))


class _Beside(_Judging):
    """Against an earlier model, which runs in turns with the new one."""

    def __init__(self, artifacts: Sequence[Artifact], model: Artifact, limit: float) -> None:
        super().__init__(limit)
        if any(model.path.resolve() == artifact.path.resolve() for artifact in artifacts):
            raise UsageError(
                f"{model.path} would be compared with itself",
                fix="give the earlier file with --against, or the JSON of an earlier bench",
            )
        self.beside = (model,)
        self._path = model.path

    def judged(self, rows: Sequence[Row], at: Conditions) -> tuple[Row, ...]:
        """See Gate."""
        earlier = {_bare(row.settings): row for row in rows if row.artifact == str(self._path)}
        found = []
        for row in rows:
            then = earlier.get(_bare(row.settings))
            if row.artifact != str(self._path) and row.floor is not None and then is not None and then.floor:
                compared = _beside(row.floor, then.floor, row.settings)
                row = row.model_copy(update={"against": compared.standard(self._limit)})
            found.append(row)
        return tuple(found)

    def _of_lane(self, lane: Lane, contest: Contest) -> Comparison | None:
        if lane.contestant.path == self._path:
            return None
        wanted = _bare(lane.contestant.settings)
        for other in contest.running:
            if other.contestant.path == self._path and _bare(other.contestant.settings) == wanted:
                return _beside(lane.floor, other.floor, lane.contestant.settings)
        return None


def _bare(settings: Settings) -> tuple[object, ...]:
    """What two models of maybe two formats have to have in common."""
    return settings.threads, settings.batch


def _beside(now: Floor, then: Floor, settings: Settings) -> Comparison:
    # Both had the same machine.
    same = Conditions(others=None)
    return compare(now, then, same, same, threads=settings.threads)
