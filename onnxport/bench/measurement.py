"""One bench: artefacts in, a row for each under each of its settings out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from onnxport.bench.accuracy import accuracy
from onnxport.bench.engine import ROUNDS, Contest, Contestant, Failure, Lane, Stop, enough
from onnxport.bench.inputs import Inputs
from onnxport.bench.params import BenchParams
from onnxport.bench.plan import RUNTIMES, Planned, planned
from onnxport.bench.report import Accuracy, Memory, Row, Settings, Spread
from onnxport.bench.sizes import compressed
from onnxport.bench.statistics import median, median_interval, quantile
from onnxport.core.arrays import Array
from onnxport.core.errors import PROVEN, OnnxportError, UsageError, printable
from onnxport.formats.artifact import Artifact
from onnxport.formats.model import Model
from onnxport.runtimes.ort.integer_products import holds_integer_products
from onnxport.runtimes.process import IsolatedRuntime
from onnxport.validate.precision import precision_of

_MS = 1000.0
_CHUNK = 1 << 22
# Precisions with activations in ranges that samples told, and decibels: such a model has more on these samples.
_CALIBRATED = ("int8", "int16x8")
_FAR = 20.0

Answers = Mapping[str, Array]


class Phases(Protocol):
    """Where a bench says what it is doing."""

    def phase(self, step: str) -> AbstractContextManager[None]: ...

    def progress(self, done: int, total: int) -> None: ...


@dataclass(frozen=True)
class Found:
    """All that a bench found out.

    Attributes:
        inputs: where they came from.
        pace_ms, others: see BenchReport.
        notes: sentences for the user.
    """

    rows: tuple[Row, ...]
    inputs: str
    pace_ms: float | None = None
    others: float | None = None
    notes: tuple[str, ...] = ()


@dataclass
class _Files:
    """What artefacts are, beside how fast: read once, however many rows they have."""

    artifacts: dict[Path, Artifact]
    graphs: list[Model]
    precisions: dict[Path, str] = field(default_factory=dict)
    zipped: dict[Path, int] = field(default_factory=dict)


def measured(
    artifacts: Sequence[Artifact], params: BenchParams, phases: Phases, until: Stop | None = None
) -> Found:
    """Measures every artefact under all its settings, in turns.

    Args:
        artifacts: in the order of the rows.
        until: when there have been rounds enough; by `params.runs` unless given.

    Raises:
        UsageError: an option that no artefact can follow, or an open size that nobody gave.
    """
    if not artifacts:
        raise UsageError("nothing is to be measured", fix="give model files")
    with phases.phase("read"):
        files = _opened(artifacts)
        plans = planned(tuple(files.artifacts[each.path] for each in artifacts), params)
        inputs = Inputs(params, files.graphs)
    trying = [number for number, plan in enumerate(plans) if plan.failure is None]
    contestants = [_contestant(plans[number], inputs) for number in trying]
    with Contest(contestants, timeout=params.timeout, heard=phases.progress) as contest:
        _run(contest, inputs, params, phases, until or enough(params.runs))
        lanes, pace = dict(zip(trying, contest.lanes, strict=True)), contest.pace
        with phases.phase("compare"):
            compared = _Comparison(params, plans, inputs)
            near = {number: compared.of(contest, lane) for number, lane in lanes.items()}
            notes = tuple(dict.fromkeys(compared.notes))
    with phases.phase("weigh"):
        _weigh(files)
    rows = tuple(
        _row(plan, files, lanes.get(number), near.get(number), inputs) for number, plan in enumerate(plans)
    )
    if params.inputs is None:
        notes += tuple(strangers(rows))
    return Found(rows, inputs.origin, pace.least_ms, pace.others, notes)


def strangers(rows: Sequence[Row]) -> Iterator[str]:
    """What is said where generated inputs make a quantized model look worse than it is."""
    integers = {row.artifact for row in rows if row.precision in _CALIBRATED}
    for row in rows:
        near = row.accuracy
        if near is not None and near.sqnr < _FAR and not integers.isdisjoint((row.artifact, near.reference)):
            yield (
                "generated inputs may lie outside of what a quantized model was calibrated for, so that its SQNR says "
                "little here: --inputs DIR feeds samples of yours"
            )
            return


def _opened(artifacts: Sequence[Artifact]) -> _Files:
    """The artefacts with all files that belong to them, and the graphs of those that are ONNX models.

    One that cannot be read stays as it is: what its runtime says of it comes in its row.
    """
    files = _Files({}, [])
    for artifact in artifacts:
        files.artifacts[artifact.path] = artifact
        if artifact.format == "onnx":
            try:
                model = Model.load(artifact.path)
            except OnnxportError:
                continue
            files.artifacts[artifact.path] = model.artifact
            files.graphs.append(model)
    for artifact in files.artifacts.values():
        _read(artifact)
    return files


def _read(artifact: Artifact) -> None:
    """Has the system keep the files at hand: else whoever loads one first would be told the disk's time as its own."""
    for path in artifact.files:
        with path.open("rb", buffering=0) as file:
            while file.read(_CHUNK):
                pass


def _contestant(plan: Planned, inputs: Inputs) -> Contestant:
    return Contestant(plan.artifact.path, plan.settings, inputs.feeding(plan.settings.batch))


def _run(contest: Contest, inputs: Inputs, params: BenchParams, phases: Phases, until: Stop) -> None:
    with phases.phase("load"):
        contest.load()
        inputs.settle(
            [
                (str(lane.contestant.path), lane.ports.inputs)
                for lane in contest.running
                if lane.ports is not None
            ]
        )
        contest.feed()
    with phases.phase("warm up"):
        contest.warm_up(params.warmup, math.ceil(params.runs / ROUNDS))
    with phases.phase("measure"):

        def heard(running: Contest) -> bool:
            needed = [math.ceil(params.runs / lane.runs) for lane in running.running]
            most = max(*needed, min(ROUNDS, params.runs), 1)
            phases.progress(running.rounds, most)
            return until(running)

        contest.run(heard)


class _Comparison:
    """Every row's answers beside the reference's, which is asked once per batch.

    Args:
        params: names the reference.
        plans: have the first .onnx file, which is it unless one is named.
        inputs: what it is fed where it is none of the rows.
    """

    def __init__(self, params: BenchParams, plans: Sequence[Planned], inputs: Inputs) -> None:
        self._params, self._inputs = params, inputs
        models = (plan.artifact.path for plan in plans if plan.artifact.format == "onnx")
        self._path = params.reference or next(models, None)
        self._expected: dict[int | None, Answers | None] = {}
        self.notes: list[str] = []

    def of(self, contest: Contest, lane: Lane) -> Accuracy | None:
        """None where there is nothing to compare."""
        if self._path is None or lane.failure is not None:
            return None
        batch = lane.contestant.settings.batch
        if batch not in self._expected:
            self._expected[batch] = self._asked(contest, batch)
        expected = self._expected[batch]
        if expected is None:
            return None
        path = lane.contestant.path
        try:
            found = accuracy(str(self._path), expected, self._answers(contest, lane))
        except OnnxportError as error:
            self.notes.append(f"{path} gave no answers to compare: {error}")
            return None
        if found is None:
            self.notes.append(
                f"no accuracy of {path} is told: none of its outputs has the name, shape and floats of one of "
                f"{self._path}"
            )
        return found

    def _answers(self, contest: Contest, lane: Lane) -> Answers:
        """Return a file's answers, with exact integer sums where this CPU's kernels may saturate.

        Times are of the CPU's own kernels, accuracy is of the file.
        """
        path, settings = lane.contestant.path, lane.contestant.settings
        is_ort = settings.runtime == RUNTIMES["onnx"] and (settings.provider or "CPU").upper().startswith(
            "CPU"
        )
        if not is_ort or not holds_integer_products(path):
            return contest.answers(lane)
        with IsolatedRuntime(path, timeout=self._params.timeout) as exact:
            return exact.run(lane.feeds)

    def _asked(self, contest: Contest, batch: int | None) -> Answers | None:
        """The reference's answers: those of its first row at this batch, or of a process of its own."""
        assert self._path is not None
        for lane in contest.running:
            if lane.contestant.path == self._path and lane.contestant.settings.batch == batch:
                return self._answers(contest, lane)
        try:
            artifact = Artifact.open(self._path)
            settings = Settings(runtime=RUNTIMES[artifact.format], threads=self._params.threads[0])
            asked = Contestant(artifact.path, settings, self._inputs.feeding(batch))
            with Contest([asked], timeout=self._params.timeout) as alone:
                alone.load()
                alone.feed()
                (lane,) = alone.lanes
                if lane.failure is not None:
                    raise lane.failure.error
                return self._answers(alone, lane)
        except OnnxportError as error:
            self.notes.append(f"no accuracy is told, the reference gave no answers: {error}")
            return None


def _weigh(files: _Files) -> None:
    """Compresses all artefacts, which takes long for large ones, several at a time."""
    with ThreadPoolExecutor() as pool:
        zipped = {path: pool.submit(compressed, artifact) for path, artifact in files.artifacts.items()}
    files.zipped = {path: future.result() for path, future in zipped.items()}
    graphs = {graph.path: graph for graph in files.graphs}
    for path, artifact in files.artifacts.items():
        try:
            files.precisions[path] = precision_of(artifact, graphs.get(path))
        except (OnnxportError, ImportError):  # its row says what is wrong with the file
            files.precisions[path] = ""


def _row(plan: Planned, files: _Files, lane: Lane | None, near: Accuracy | None, inputs: Inputs) -> Row:
    artifact = plan.artifact
    row = Row(
        artifact=str(artifact.path),
        format=artifact.format,
        status="measured",
        settings=plan.settings,
        precision=files.precisions[artifact.path].replace("unknown", ""),
        size=artifact.size,
        compressed=files.zipped[artifact.path],
        accuracy=near,
    )
    failure = plan.failure if lane is None else lane.failure
    if failure is not None:
        return row.model_copy(update=_failed(failure, planned=lane is None))
    assert lane is not None
    assert lane.ports is not None
    batch = inputs.batch_of(lane.ports.inputs, lane.feeds)
    settings = plan.settings.model_copy(update={"batch": batch if batch is not None else plan.settings.batch})
    return row.model_copy(update={"settings": settings, **_figures(lane, settings.batch or 1)})


def _failed(failure: Failure, planned: bool) -> dict[str, object]:
    """What becomes of a row without figures; one that the user can do nothing about here fails no command."""
    error = failure.error
    code = PROVEN if planned else error.exit_code
    return {"status": failure.status, "why": printable(" ".join(str(error).split())), "exit_code": code}


def _figures(lane: Lane, batch: int) -> dict[str, object]:
    spread = spread_of(lane)
    joules = [turn.joules for turn in lane.turns]
    used = sum(filter(None, joules)) if all(each is not None for each in joules) else None
    return {
        "ran_on": lane.ran_on,
        "load_ms": _digits(_MS * lane.loading),
        "first_ms": _digits(_MS * lane.first),
        "latency": spread,
        "floor": lane.floor,
        "throughput": _digits(_MS * batch / spread.median),
        "memory": Memory(bare=lane.bare, imported=lane.imported, loaded=lane.loaded, peak=lane.peak),
        "joules": None if used is None else _digits(used / len(lane.times)),
    }


def spread_of(lane: Lane) -> Spread:
    """The times of a lane that had a turn, in milliseconds; the interval is of the rounds' medians."""
    times = [_MS * each for each in lane.times]
    rounds = [_MS * median(turn.times) for turn in lane.turns]
    middle, interval = median(times), median_interval(rounds)
    return Spread(
        median=_digits(middle),
        p90=_digits(quantile(times, 0.9)),
        p99=_digits(quantile(times, 0.99)),
        least=_digits(min(times)),
        low=_digits(min(interval.low, middle)),
        high=_digits(max(interval.high, middle)),
        confidence=_digits(interval.confidence),
        runs=len(times),
        rounds=tuple(map(_digits, rounds)),
    )


def _digits(value: float) -> float:
    """To five digits: more say nothing."""
    return float(f"{value:.5g}")
