"""Runs the steps of a job and asks the judge about their product."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxport.converters.params import PARAMS
from onnxport.core.child_process import ChildHung
from onnxport.core.errors import CannotConvertError, InputError, MachineError
from onnxport.formats.artifact import SUFFIXES, Artifact, writing
from onnxport.formats.manifest import MAIN, Manifest
from onnxport.pipelines.environment import RUNS_ON, require, versions
from onnxport.pipelines.registry import open_worker
from onnxport.pipelines.runner import functions
from onnxport.pipelines.runner.accelerators import ask_accelerators
from onnxport.pipelines.runner.clock import TIMED, Clock
from onnxport.pipelines.runner.cut_advice import advise_cut, advise_samples, options_for_part
from onnxport.pipelines.runner.error_paths import name_the_source
from onnxport.pipelines.runner.jobs import Job
from onnxport.pipelines.runner.model_sources import describe_labels, load, origin_of, reading, unchanged
from onnxport.pipelines.runner.provenance import options_of
from onnxport.pipelines.runner.report import Outcome
from onnxport.pipelines.runner.shared_references import Sharing
from onnxport.pipelines.runner.speedup import measure_speedup
from onnxport.pipelines.runner.verdicts import blame_the_model, start_reference, verdict
from onnxport.pipelines.stages import Product, UsersInputs, Work, Worker
from onnxport.quantize.params import QuantizeParams
from onnxport.reports.run_report import SourceRecord, suspect_samples
from onnxport.runtimes import registry
from onnxport.runtimes.options import AUTO

if TYPE_CHECKING:
    from pydantic import BaseModel

    from onnxport.formats.model import Model
    from onnxport.formats.zipmap import Labels
    from onnxport.pipelines.runner.judges import Judges
    from onnxport.validate.report import Report


def make(job: Job, folder: Path, stack: ExitStack, clock: Clock, sharing: Sharing | None = None) -> Outcome:
    """Run the steps of `job` below `folder` and judge their product; `stack` closes the workers and the judge.

    Args:
        sharing: what this job has in common with others of the command; None for a single job.
    """
    if job.functions or job.operators is not None:  # options and references of their own
        sharing = None
    lowers = any(step.stage.lowers for step in job.steps[:-1])
    stack.enter_context(name_the_source(job, folder))
    workers = [
        None if step.made is not None else stack.enter_context(open_worker(step.stage)) for step in job.steps
    ]
    runtime, starting = None, stack.enter_context(ExitStack())
    if job.validation is not None:
        require(RUNS_ON[job.target.gives], f"proving {job.output}")
        if job.operators is None and (sharing is None or not sharing.has(job.source, job.validation)):
            runtime = starting.enter_context(start_reference(job.source, job.validation))
    with clock.phase("load"), reading(job.source):
        model, source, origin = _load(job.source) if sharing is None else sharing.load(job.source)
    job.check_spares(source)
    answering, notes = source, tuple[str, ...]()
    if job.operators is not None:
        model, answering, notes = _define(model, source, job.operators, folder)
        if job.validation is not None:
            runtime = starting.enter_context(start_reference(answering, job.validation))
    models = functions.load_models(model, job.functions)
    further = {name: each.artifact for name, each in models.items() if name != MAIN}
    judge = None
    if job.validation is not None:
        from onnxport.pipelines.runner.judges import Judges  # reads NumPy: the children start first

        expected = Artifact(_output_of(job, folder, len(job.steps) - 1), job.target.gives)
        validation, run = functions.validation_of(job.validation, MAIN, models), None
        if sharing is not None:
            run = sharing.reference(source, validation, runtime, model, clock.tell)
            starting.pop_all()  # it is the run's now
        judge = stack.enter_context(
            Judges(source, validation, runtime, model, expected, lowers=lowers, tell=clock.tell, run=run)
        )
    with unchanged(source, *further.values()):
        chain = _Chain(job, folder, origin, judge, clock, workers, model.labels, notes)
        start = chain.run_first_steps(model)
        product, report = chain.prove(start, source)
        if judge is not None and report.verdict == "not equivalent" and job.rewrites and product.is_ours:
            # A pass may be at fault. Run again with a check behind each pass, which skips the faulty one.
            checked = replace(chain, folder=folder / "checked", check_passes=True, tries=True)
            second = product
            with suppress(CannotConvertError):  # of a model that needs the faulty pass: the verdict stands
                second = checked.run_last_step(start)
            if second.notes != product.notes:
                product, report = second, verdict(judge, source, second, clock)
        if judge is not None and report.passed and not product.unrunnable:
            report = ask_accelerators(judge, job.steps[-1].params, product.artifact, report, clock)
        others = {name: functions.judge(name, models, product, job.validation, clock) for name in further}
    libraries = {name for step in job.steps for name in step.stage.libraries}
    libraries |= {"onnxruntime", *RUNS_ON[job.target.gives]} if job.validation is not None else set()
    outcome = Outcome(origin, job.target.name, product, report, libraries, others)
    if job.is_timed and job.destination(passed=outcome.passed) is not None:
        with clock.phase(TIMED):
            speedup = measure_speedup(
                lambda: chain.run_in_float(model, answering), product.artifact, judge, folder / "latency"
            )
        outcome = replace(outcome, speedup=speedup)
    return outcome


def _load(source: Artifact) -> tuple[Model, Artifact, SourceRecord]:
    model, artifact = load(source)
    return model, artifact, origin_of(artifact)


def _define(
    model: Model, source: Artifact, operators: Path, folder: Path
) -> tuple[Model, Artifact, tuple[str, ...]]:
    """Return the model with the user's definitions inlined, what answers for it, and notes.

    The file itself answers with the kernels of a library of custom operators, else a copy with the definitions, which
    ONNX Runtime inlines.
    """
    from onnxport.optimizers.operator_definitions import define_operators, inline_definitions
    from onnxport.runtimes.custom_libraries import libraries

    defined, notes = define_operators(model, operators)
    place = folder / "defined" / "0"
    place.mkdir(parents=True)
    answering = source
    if not libraries():
        answering, notes = defined.save(place / "defined.onnx"), (*notes, _TAKEN_AS_RIGHT)
    # A file, too: some steps read the model from its path.
    inlined, _ = load(inline_definitions(defined).save(place / "inlined.onnx"))
    inlined.labels = model.labels
    return inlined, answering, notes


_TAKEN_AS_RIGHT = (
    "the proof takes these definitions as right: ONNX Runtime has no kernels to compare them with; "
    "--custom-ops-library gives them"
)
# The options of a target that change what an artefact rounds.
_IN_FLOAT = {"precision": None, "io": "float"}


@dataclass(frozen=True)
class _Start:
    """The input of the last step: a model, with the notes and facts of the steps before."""

    model: Model
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Chain:
    """The steps of one job while they run."""

    job: Job
    folder: Path
    origin: SourceRecord
    judge: Judges | None
    clock: Clock
    workers: Sequence[Worker | None]
    labels: Mapping[str, Labels] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    check_passes: bool = False
    tries: bool = False

    def prove(self, start: _Start, source: Artifact) -> tuple[Product, Report]:
        """Return the last step's product with the report on it.

        Where the proof could run nothing, the step runs again and tries its product: what no runtime takes is refused
        in the worker's words, which name the node, or converted by another route.
        """
        product, failure = self.run_last_step(start), None
        try:
            report = verdict(self.judge, source, product, self.clock)
            if report.outputs or not self._leaves_trial_to_proof or not product.is_ours:
                return product, report
        except (InputError, MachineError) as error:
            if not self._leaves_trial_to_proof or not product.is_ours or isinstance(error, ChildHung):
                raise
            failure = error
        second = replace(self, folder=self.folder / "tried", tries=True).run_last_step(start)
        if not second.is_ours:
            return second, verdict(self.judge, source, second, self.clock)
        if failure is not None:
            raise failure
        return product, report

    @property
    def _leaves_trial_to_proof(self) -> bool:
        """Return whether the proof runs the product as a trial would, which the worker then leaves out."""
        if (
            self.tries
            or self.judge is None
            or self.job.validation is None
            or self.job.target.gives != "tflite"
        ):
            return False
        given = self.job.validation.candidate_runtime
        kind = registry.find_runtime("tflite", given.get("runtime", AUTO))
        return kind.name == "litert" and given.get("delegate", "xnnpack") == "xnnpack"

    def run_first_steps(self, model: Model) -> _Start:
        """Run all steps but the last, unless they are made already."""
        start = _Start(model, (*self.notes, *model.mended, *describe_labels(model)))
        for number, step in enumerate(self.job.steps[:-1]):
            product = Product(step.made) if step.made is not None else self._run(number, start)
            model, artifact = load(product.artifact)
            if self.judge is not None and step.stage.lowers:
                self.judge.judge_against(artifact, model)
            start = _Start(model, product.notes, product.facts)
        return start

    def run_last_step(self, start: _Start) -> Product:
        """Return the last step's product, with the notes and facts of all steps."""
        return self._run(len(self.workers) - 1, start)

    def run_in_float(self, model: Model, source: Artifact) -> Artifact:
        """Return the source in the target's format without a lower precision, for comparison."""
        if "onnxruntime" in RUNS_ON.get(self.job.target.gives, ()):
            return source
        params = self.job.steps[-1].params.model_copy(update=_IN_FLOAT)
        apart = replace(self, folder=self.folder / "float", clock=Clock(None), tries=True)
        worker = self.workers[-1]
        assert worker is not None, "the last step is never made already"
        return worker(model, params, apart._work(len(self.job.steps) - 1)).artifact

    def _run(self, number: int, start: _Start) -> Product:
        worker = self.workers[number]
        assert worker is not None, "a step that is made already has no worker"
        with writing(self.job.output), blame_the_model(self.job.source, self.judge):
            try:
                product = worker(start.model, self._params(number), self._work(number))
            except CannotConvertError as refusal:
                if suspicion := suspect_samples(start.facts):
                    raise advise_samples(refusal, suspicion) from refusal
                asked = self.job.target.name in PARAMS and self.job.operators is None
                if number or self.check_passes or not asked:
                    raise
                try_part = partial(self._try_part, worker)
                raise advise_cut(refusal, start.model, try_part, self.clock) from refusal
        return replace(product, notes=(*start.notes, *product.notes), facts={**start.facts, **product.facts})

    def _params(self, number: int) -> BaseModel:
        """Return a step's options; behind a quantization without a precision, since the model has one.

        A budget may have put all activations of an int8 model in 16 bits, and nothing but its weights in 8.
        """
        params = self.job.steps[number].params
        is_quantized = number > 0 and isinstance(self.job.steps[number - 1].params, QuantizeParams)
        return params.model_copy(update={"precision": None}) if is_quantized else params

    def _try_part(self, worker: Worker, part: Model) -> None:
        """Convert a part of the model as the job asks, for nothing but its refusals."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        job = replace(self.job, validation=None)
        apart = replace(self, folder=folder, judge=None, job=job, clock=Clock(None))
        worker(part, options_for_part(self.job.steps[0].params, part), apart._work(0))

    def _work(self, number: int) -> Work:
        output = _output_of(self.job, self.folder, number)
        output.parent.mkdir(parents=True)
        so_far = self.job.steps[: number + 1]
        proof = self.job.validation
        checks = self.check_passes or self.job.steps[number].stage.checks_passes
        return Work(
            output=output,
            manifest=Manifest(
                source=self.origin.digest,
                made_by=versions(name for step in so_far for name in step.stage.libraries),
                options=options_of((step.stage.name, step.params) for step in so_far),
                validation="skipped" if self.judge is None else "required",
                labels=self.labels,
            ),
            equivalence=self.judge.differs if self.judge is not None and checks else None,
            phases=self.clock,
            inputs=UsersInputs(proof.inputs, proof.preprocess) if proof and proof.inputs else None,
            validation=proof,
            tries=not self._leaves_trial_to_proof,
        )


def _output_of(job: Job, folder: Path, number: int) -> Path:
    """Return the file that step `number` writes: in a folder of its own, under the final name."""
    suffix = SUFFIXES[job.steps[number].stage.gives]
    return folder / str(number) / job.output.with_suffix(suffix).name
