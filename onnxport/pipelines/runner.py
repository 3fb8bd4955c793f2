"""Runs stages on a model and lets their product out only with the judge's consent.

Every command that makes or judges an artefact goes through here: source -> stages -> verdict -> commit. What a
stage writes lies in a private folder beside the output until the verdict; an error anywhere, or Ctrl-C, leaves
nothing behind. The runner prints nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxport.formats.artifact import FOLDERS, SUFFIXES, Artifact, Staging, writing
from onnxport.formats.manifest import MAIN, Manifest
from onnxport.pipelines import functions
from onnxport.pipelines.background_judge import blaming_the_model, started, verdict
from onnxport.pipelines.environment import RUNS_ON, require, versions
from onnxport.pipelines.error_paths import naming_the_source
from onnxport.pipelines.jobs import Job
from onnxport.pipelines.model_sources import load, origin_of, reading, unchanged
from onnxport.pipelines.provenance import options_of
from onnxport.pipelines.references import Judges
from onnxport.pipelines.registry import open_worker
from onnxport.pipelines.report_assembly import function_records, moves, named_for, record_of, run_report
from onnxport.pipelines.speedup import worth_of
from onnxport.pipelines.stages import Product, UsersInputs, Work, Worker
from onnxport.pipelines.step_times import TIMED, Clock, Progress
from onnxport.reports.run_report import RunReport, SourceRecord

if TYPE_CHECKING:
    from onnxport.formats.model import Model
    from onnxport.validate.report import Report


def run(
    job: Job,
    command: str,
    progress: Progress | None = None,
    save: Callable[[RunReport], None] = lambda report: None,
    arguments: Sequence[str] = (),
) -> RunReport:
    """Makes the artefact of `job`; it is at `job.output` afterwards only if the report says it passed.

    Args:
        arguments: what the user typed behind the command's name, for the report.
        save: takes down the report before the artefact takes its place; there is none if that fails.
    """
    clock = Clock(progress)
    lowers = any(step.stage.lowers for step in job.steps[:-1])
    with Staging(job.output, folder=job.target.gives in FOLDERS) as staging, ExitStack() as stack:
        stack.enter_context(naming_the_source(job, staging.folder))
        workers = [
            None if step.made is not None else stack.enter_context(open_worker(step.stage))
            for step in job.steps
        ]
        runtime = None
        if job.validation is not None:
            require(RUNS_ON[job.target.gives], f"proving {job.output}")
            runtime = stack.enter_context(started(job.source, job.validation))
        with clock.phase("load"), reading(job.source):
            model, source = load(job.source)
            origin = origin_of(source)
        job.check_spares(source)
        models = functions.loaded(model, job.functions)
        further = {name: each.artifact for name, each in models.items() if name != MAIN}
        judge = None
        if job.validation is not None and runtime is not None:
            expected = Artifact(_staged(job, staging.folder, len(job.steps) - 1), job.target.gives)
            validation = functions.validation_of(job.validation, MAIN, models)
            judge = stack.enter_context(
                Judges(source, validation, runtime, model, expected, lowers=lowers, tell=clock.searching)
            )
        with unchanged(source, *further.values()):
            workshop = _Workshop(job, staging.folder, origin, judge, clock)
            begun = workshop.begin(workers, model)
            product = workshop.finish(workers, begun)
            report = verdict(judge, source, product, clock)
            if judge is not None and report.verdict == "not equivalent" and job.rewrites and product.is_ours:
                # The fault may be a pass's: checked one by one, the culprit is skipped. No right model pays for this.
                checked = replace(workshop, folder=staging.folder / "checked", check_passes=True)
                second = checked.finish(workers, begun)
                if second.notes != product.notes:
                    product, report = second, verdict(judge, source, second, clock)
            others = [functions.judged(name, models, product, job.validation, clock) for name in further]
        final = _destination(job, (report, *others))
        worth = None
        if final is not None and job.latency and job.lowers:
            with clock.phase(TIMED):
                worth = worth_of(
                    lambda: workshop.in_float(workers, model, source),
                    product.artifact,
                    judge,
                    staging.folder / "latency",
                )
        product, report = named_for(product, report, final)
        record = record_of(product, final, job.target.name, report, origin, clock, worth)
        records = function_records(record, dict(zip(further, others, strict=True)))
        whole = run_report((command, *arguments), origin, records, _libraries(job), clock)
        save(whole)
        if final is not None and product.artifact.is_folder:
            staging.commit_folder(product.artifact.path, final)
        elif final is not None:
            staging.commit(moves(product.artifact, final))
    return whole


# The options of a target that say what an artefact rounds.
_IN_FLOAT = {"precision": None, "io": "float"}


@dataclass(frozen=True)
class _Begun:
    """What the steps before the last made: the model that the last starts from, and what is to be said of it."""

    model: Model
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Workshop:
    """What the steps of one job have in common while they run."""

    job: Job
    folder: Path
    origin: SourceRecord
    judge: Judges | None
    clock: Clock
    check_passes: bool = False

    def begin(self, workers: Sequence[Worker | None], model: Model) -> _Begun:
        """Runs all steps but the last, where they are not made yet."""
        begun = _Begun(model)
        for number, step in enumerate(self.job.steps[:-1]):
            made = step.made
            product = Product(made) if made is not None else self._made(number, workers, begun)
            model, artifact = load(product.artifact)
            if self.judge is not None and step.stage.lowers:
                self.judge.hold_to(artifact, model)
            begun = _Begun(model, product.notes, product.facts)
        return begun

    def finish(self, workers: Sequence[Worker | None], begun: _Begun) -> Product:
        """The last step's product, with the notes and facts of all that ran."""
        return self._made(len(workers) - 1, workers, begun)

    def in_float(self, workers: Sequence[Worker | None], model: Model, source: Artifact) -> Artifact:
        """What the source is for the target's runtime without a lower precision, for comparison."""
        if self.job.target.gives in RUNS_ON and "onnxruntime" in RUNS_ON[self.job.target.gives]:
            return source
        params = self.job.steps[-1].params.model_copy(update=_IN_FLOAT)
        apart = replace(self, folder=self.folder / "float", clock=Clock(None))
        worker = workers[-1]
        assert worker is not None, "the last step is never made already"
        return worker(model, params, apart._work(len(self.job.steps) - 1)).artifact

    def _made(self, number: int, workers: Sequence[Worker | None], begun: _Begun) -> Product:
        worker = workers[number]
        assert worker is not None, "of a step that is made already nothing is asked"
        with writing(self.job.output), blaming_the_model(self.job.source, self.judge):
            product = worker(begun.model, self.job.steps[number].params, self._work(number))
        return replace(product, notes=(*begun.notes, *product.notes), facts={**begun.facts, **product.facts})

    def _work(self, number: int) -> Work:
        output = _staged(self.job, self.folder, number)
        output.parent.mkdir(parents=True)
        so_far = self.job.steps[: number + 1]
        checks = self.check_passes or self.job.steps[number].stage.checks_passes
        return Work(
            output=output,
            manifest=Manifest(
                source=self.origin.digest,
                made_by=versions(name for step in so_far for name in step.stage.libraries),
                options=options_of((step.stage.name, step.params) for step in so_far),
                validation="skipped" if self.judge is None else "required",
            ),
            equivalence=self.judge.differs if self.judge is not None and checks else None,
            phases=self.clock,
            inputs=_users_inputs(self.job),
            validation=self.job.validation,
        )


def _users_inputs(job: Job) -> UsersInputs | None:
    if job.validation is None or job.validation.inputs is None:
        return None
    return UsersInputs(job.validation.inputs, job.validation.preprocess)


def _staged(job: Job, folder: Path, number: int) -> Path:
    """Where step `number` writes: a folder of its own, under the final name."""
    suffix = SUFFIXES[job.steps[number].stage.gives]
    return folder / str(number) / job.output.with_suffix(suffix).name


def _destination(job: Job, reports: Sequence[Report]) -> Path | None:
    """Where the product goes; None where it is dropped."""
    if all(report.passed for report in reports):
        return job.output
    return job.output.with_suffix(f".rejected{job.output.suffix}") if job.keep_rejected else None


def _libraries(job: Job) -> set[str]:
    names = {name for step in job.steps for name in step.stage.libraries}
    return names | {"onnxruntime", *RUNS_ON[job.target.gives]} if job.validation is not None else names
