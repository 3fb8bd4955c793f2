"""One bench: measure artefacts, a row for each under each of its settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from onnxport.bench.accuracy import AccuracyMeter, uncalibrated_notes
from onnxport.bench.files import Files, open_files, weigh
from onnxport.bench.inputs import Inputs
from onnxport.bench.params import BenchParams
from onnxport.bench.plan import Planned, plan_rows
from onnxport.bench.report import Accuracy, Memory, Row, Spread
from onnxport.bench.session import ROUNDS, Failure, Session, Stop, Subject, Trial, enough
from onnxport.bench.statistics import digits, median, median_interval, quantile
from onnxport.core.errors import PROVEN, UsageError, printable
from onnxport.formats.artifact import Artifact

_MS = 1000.0


class Phases(Protocol):
    """Shows the progress of a bench."""

    def phase(self, step: str) -> AbstractContextManager[None]: ...

    def progress(self, done: int, total: int) -> None: ...


@dataclass(frozen=True)
class Measured:
    """The result of a bench."""

    rows: tuple[Row, ...]
    inputs: str  # their origin
    # pace_ms, others: see BenchReport.
    pace_ms: float | None = None
    others: float | None = None
    notes: tuple[str, ...] = ()  # sentences for the user


def measure(
    artifacts: Sequence[Artifact], params: BenchParams, phases: Phases, until: Stop | None = None
) -> Measured:
    """Measure every artefact under all its settings, in turns, until `until` or `params.runs` ends the session.

    Raises:
        UsageError: an option that no artefact can follow, or an open size that was not given.
    """
    if not artifacts:
        raise UsageError("there is nothing to measure", fix="give model files")
    with phases.phase("read"):
        files = open_files(artifacts)
        plans = plan_rows(tuple(files.artifacts[each.path] for each in artifacts), params)
        inputs = Inputs(params, files.graphs)
    tried = [number for number, plan in enumerate(plans) if plan.failure is None]
    subjects = [
        Subject(each.artifact.path, each.settings, inputs.feeding(each.settings.batch))
        for each in (plans[number] for number in tried)
    ]
    with Session(subjects, timeout=params.timeout, on_progress=phases.progress) as session:
        _run(session, inputs, params, phases, until or enough(params.runs))
        trials, pace = dict(zip(tried, session.trials, strict=True)), session.pace
        with phases.phase("compare"):
            meter = AccuracyMeter(params, plans, inputs)
            accuracies = meter.measure(session, trials)
    with phases.phase("weigh"):
        weigh(files)
    rows = tuple(
        _row(plan, files, trials.get(number), accuracies.get(number), inputs)
        for number, plan in enumerate(plans)
    )
    remarks = (remark for trial in trials.values() for remark in trial.remarks)
    notes = tuple(dict.fromkeys((*meter.notes, *remarks)))
    if params.inputs is None:
        notes += tuple(uncalibrated_notes(rows))
    return Measured(rows, inputs.origin, pace.least_ms, pace.others, notes)


def _run(session: Session, inputs: Inputs, params: BenchParams, phases: Phases, until: Stop) -> None:
    with phases.phase("load"):
        session.load()
        running = ((trial.subject.path, trial.ports) for trial in session.running)
        inputs.resolve_sizes([(str(path), ports.inputs) for path, ports in running if ports is not None])
        session.feed()
    with phases.phase("warm up"):
        session.warm_up(params.warmup, math.ceil(params.runs / ROUNDS))
    with phases.phase("measure"):

        def stop(running: Session) -> bool:
            rounds = [math.ceil(params.runs / trial.runs) for trial in running.running]
            phases.progress(running.rounds, max(*rounds, min(ROUNDS, params.runs), 1))
            return until(running)

        session.run(stop)


def row_of(plan: Planned, files: Files, failure: Failure | None) -> Row:
    """Return a row without times: with what its files show, or with the reason why there will be none."""
    artifact = plan.artifact
    row = Row(
        artifact=str(artifact.path),
        format=artifact.format,
        status="measured",
        settings=plan.settings,
        precision=files.precisions[artifact.path].replace("unknown", ""),
        size=artifact.size,
        compressed=files.zipped[artifact.path],
    )
    if failure is None:
        return row
    code = (
        PROVEN if failure is plan.failure else failure.error.exit_code
    )  # a planned failure fails no command
    why = printable(" ".join(str(failure.error).split()))
    return row.model_copy(update={"status": failure.status, "why": why, "exit_code": code})


def _row(plan: Planned, files: Files, trial: Trial | None, accuracy: Accuracy | None, inputs: Inputs) -> Row:
    failure = plan.failure if trial is None else trial.failure
    row = row_of(plan, files, failure).model_copy(update={"accuracy": accuracy})
    if failure is not None:
        return row
    assert trial is not None
    assert trial.ports is not None
    batch = inputs.batch_of(trial.ports.inputs, trial.feeds)
    settings = plan.settings.model_copy(update={"batch": batch if batch is not None else plan.settings.batch})
    return row.model_copy(update={"settings": settings, **_figure_fields(trial, settings.batch or 1)})


def _figure_fields(trial: Trial, batch: int) -> dict[str, object]:
    spread = _spread(trial)
    joules = [turn.joules for turn in trial.turns]
    used = sum(filter(None, joules)) if all(each is not None for each in joules) else None
    return {
        "ran_on": trial.ran_on,
        "load_ms": digits(_MS * trial.loading),
        "first_ms": digits(_MS * trial.first),
        "second_ms": None if trial.second is None else digits(_MS * trial.second),
        "latency": spread,
        "floor": trial.floor,
        "throughput": digits(_MS * batch / spread.median),
        "memory": Memory(bare=trial.bare, imported=trial.imported, loaded=trial.loaded, peak=trial.peak),
        "joules": None if used is None else digits(used / len(trial.times)),
    }


def _spread(trial: Trial) -> Spread:
    """Return the times of a trial in milliseconds; the interval is that of the rounds' medians."""
    times = [_MS * each for each in trial.times]
    rounds = [_MS * median(turn.times) for turn in trial.turns]
    middle, interval = median(times), median_interval(rounds)
    return Spread(
        median=digits(middle),
        p90=digits(quantile(times, 0.9)),
        p99=digits(quantile(times, 0.99)),
        least=digits(min(times)),
        low=digits(min(interval.low, middle)),
        high=digits(max(interval.high, middle)),
        confidence=digits(interval.confidence),
        runs=len(times),
        rounds=tuple(map(digits, rounds)),
    )
