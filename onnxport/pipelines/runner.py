"""Runs stages on a model and lets their product out only with the judge's consent.

Every command that makes or judges an artefact goes through here: source -> stages -> verdict -> commit. What a
stage writes lies in a private folder beside the output until the verdict; an error anywhere, or Ctrl-C, leaves
nothing behind. The runner prints nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxport.artifact import FOLDERS, SUFFIXES, Artifact, Staging, writing
from onnxport.manifest import MAIN, Manifest
from onnxport.pipelines import functions
from onnxport.pipelines.clock import Clock, Progress
from onnxport.pipelines.environment import RUNS_ON, require, versions
from onnxport.pipelines.jobs import Job, Step
from onnxport.pipelines.judging import JudgeAhead, blaming_the_model, started, verdict
from onnxport.pipelines.records import function_records, placed, record_of, run_report
from onnxport.pipelines.report import RunReport, SourceRecord
from onnxport.pipelines.sources import load, origin_of, reading, unchanged
from onnxport.pipelines.stages import Product, UsersInputs, Work, Worker

if TYPE_CHECKING:
    from onnxport.model import Model
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
    with Staging(job.output, folder=job.target.gives in FOLDERS) as staging, ExitStack() as stack:
        workers = [stack.enter_context(step.stage.open()) for step in job.steps]
        runtime = None
        if job.validation is not None:
            require(RUNS_ON[job.target.gives], f"proving {job.output}")
            runtime = stack.enter_context(started(job.source, job.validation))
        with clock.phase("load"), reading(job.source):
            model, source = load(job.source)
            origin = origin_of(source)
        models = functions.loaded(model, job.functions)
        further = {name: each.artifact for name, each in models.items() if name != MAIN}
        judge = None
        if job.validation is not None and runtime is not None:
            expected = Artifact(_staged(job, staging.folder, len(job.steps) - 1), job.target.gives)
            validation = functions.validation_of(job.validation, MAIN, models)
            judge = stack.enter_context(JudgeAhead(source, validation, runtime, model, expected))
        with unchanged(source, *further.values()):
            product = _Workshop(job, staging.folder, origin, judge, clock).make(workers, model)
            report = verdict(judge, source, product, clock)
            if judge is not None and report.verdict == "not equivalent" and job.rewrites and product.is_ours:
                # The fault may be a pass's: checked one by one, the culprit is skipped. No right model pays for this.
                checked = _Workshop(job, staging.folder / "checked", origin, judge, clock, check_passes=True)
                second = checked.make(workers, model)
                if second.notes != product.notes:
                    product, report = second, verdict(judge, source, second, clock)
            others = [functions.judged(name, models, product, job.validation, clock) for name in further]
        final = _destination(job, (report, *others))
        record = record_of(product, final, job.target.name, report, origin, clock)
        records = function_records(record, dict(zip(further, others, strict=True)))
        whole = run_report((command, *arguments), origin, records, _libraries(job), clock)
        save(whole)
        if final is not None and product.artifact.is_folder:
            staging.commit_folder(product.artifact.path, final)
        elif final is not None:
            staging.commit(_moves(product.artifact, final))
    return whole


@dataclass(frozen=True)
class _Workshop:
    """What the steps of one job have in common while they run."""

    job: Job
    folder: Path
    origin: SourceRecord
    judge: JudgeAhead | None
    clock: Clock
    check_passes: bool = False

    def make(self, workers: Sequence[Worker], model: Model) -> Product:
        """The last step's product, with the notes and facts of all."""
        notes: tuple[str, ...] = ()
        facts: dict[str, Any] = {}
        product = None
        for number, (step, worker) in enumerate(zip(self.job.steps, workers, strict=True)):
            if product is not None:
                model, _ = load(product.artifact)
            with writing(self.job.output), blaming_the_model(self.job.source, self.judge):
                product = worker(model, step.params, self._work(step, number))
            notes += product.notes
            facts |= product.facts
        assert product is not None, "a job has at least one step"
        return replace(product, notes=notes, facts=facts)

    def _work(self, step: Step, number: int) -> Work:
        output = _staged(self.job, self.folder, number)
        output.parent.mkdir(parents=True)
        return Work(
            output=output,
            manifest=Manifest(
                source=self.origin.digest,
                made_by=versions(step.stage.libraries),
                options={step.stage.name: step.params.model_dump(mode="json")},
                validation="skipped" if self.judge is None else "required",
            ),
            equivalence=self.judge.differs if self.judge is not None and self.check_passes else None,
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


def _moves(artifact: Artifact, final: Path) -> dict[Path, Path]:
    """Each file of a staged artefact and where it goes, the main file last."""
    files = (*artifact.companions, artifact.path)
    return {file: placed(file, artifact, final) for file in files}


def _libraries(job: Job) -> set[str]:
    names = {name for step in job.steps for name in step.stage.libraries}
    return names | {"onnxruntime", *RUNS_ON[job.target.gives]} if job.validation is not None else names
