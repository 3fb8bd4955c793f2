"""Extracts a part of a model, proven against the values that the whole model has there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from onnxport.core.errors import OnnxportError
from onnxport.formats.artifact import Artifact, writing
from onnxport.formats.manifest import Manifest
from onnxport.pipelines.environment import RUNS_ON, require, versions
from onnxport.pipelines.registry import open_worker
from onnxport.pipelines.runner.clock import Clock
from onnxport.pipelines.runner.error_paths import name_the_source
from onnxport.pipelines.runner.jobs import Extraction
from onnxport.pipelines.runner.model_sources import load, origin_of, reading, unchanged
from onnxport.pipelines.runner.provenance import options_of
from onnxport.pipelines.runner.report import Outcome
from onnxport.pipelines.runner.verdicts import start_reference, verdict
from onnxport.pipelines.stages import Work
from onnxport.reports.run_report import name_samples_option

if TYPE_CHECKING:
    from onnxport.formats.model import Model
    from onnxport.validate.judge import Judge
    from onnxport.validate.params import ValidateParams

_CUT_AGAIN = (
    "the part was compared with that of onnx.utils.Extractor, both fed with generated inputs of the part"
)


def make(job: Extraction, folder: Path, stack: ExitStack, clock: Clock) -> Outcome:
    """Make and judge the part that `job` asks for below `folder`; `stack` closes the worker and the judge."""
    (step,) = job.steps
    stack.enter_context(_name_own_option())
    stack.enter_context(name_the_source(job, folder))
    worker = stack.enter_context(open_worker(step.stage))
    if job.validation is not None:
        require(RUNS_ON["onnx"], f"proving {job.output}")
    with clock.phase("load"), reading(job.source):
        model, source = load(job.source)
        origin = origin_of(source)
    job.check_spares(source)
    with unchanged(source):
        (folder / "0").mkdir()
        manifest = Manifest(
            source=origin.digest,
            made_by=versions(step.stage.libraries),
            options=options_of([(step.stage.name, step.params)]),
            validation="skipped" if job.validation is None else "required",
        )
        work = Work(folder / "0" / job.output.name, manifest, None, clock)
        with writing(job.output):
            product = worker(model, step.params, work)
        judge, remarks = None, list[str]()
        if job.validation is not None:
            part, _ = load(product.artifact)
            judge, remarks = _open_judge(source, model, part, job.validation, folder, clock)
            stack.enter_context(judge)
        report = verdict(judge, source, product, clock)
    notes = [*remarks, *(name_samples_option(note, "extract") for note in report.notes)]
    reference = report.reference.model_copy(update={"path": str(source.path)})
    report = report.model_copy(update={"notes": tuple(notes), "reference": reference})
    return Outcome(origin, step.stage.name, product, report, {*step.stage.libraries, *RUNS_ON["onnx"]})


@contextmanager
def _name_own_option() -> Iterator[None]:
    """Name the option of this command in an error that names the one of all others."""
    try:
        yield
    except OnnxportError as error:
        error.fix = name_samples_option(error.fix, "extract")
        raise


def _open_judge(
    source: Artifact, model: Model, part: Model, params: ValidateParams, folder: Path, clock: Clock
) -> tuple[Judge, list[str]]:
    """Open the judge; return it and remarks for the report.

    Where ONNX Runtime lacks operators behind the part, the whole model runs up to the part's outputs. Where it lacks
    some in front, no values of the model are there to feed: the reference is the part as another tool cuts it.
    """
    import onnx

    from onnxport.optimizers.extraction import cut_again, front_of
    from onnxport.runtimes.custom_libraries import libraries
    from onnxport.validate.judge import Judge
    from onnxport.validate.part import PartJudge

    front = front_of(model, [spec.name for spec in part.outputs])
    for value, typed in zip(front.graph.outputs, part.graph.outputs, strict=True):
        value.type, value.shape = typed.type, typed.shape
    whole = source
    unknown, lacking, beyond = (
        set() if libraries() else _unknown_domains(each) for each in (model, front, part)
    )
    if lacking and not beyond:
        onnx.save(cut_again(source.path, part), folder / "again.onnx")
        again = Artifact.open(folder / "again.onnx")
        judge = Judge(again, params, start_reference(again, params), tell=clock.tell)
        return judge, [f"ONNX Runtime lacks {', '.join(sorted(lacking))}, so {_CUT_AGAIN}"]
    if unknown > lacking:
        whole = front.save(folder / "front.onnx")
    return PartJudge(source, params, start_reference(whole, params), front, part, clock.tell), []


def _unknown_domains(model: Model) -> set[str]:
    """Return the domains of operators that neither ONNX Runtime nor a function of the model defines."""
    from onnxport.optimizers.node_marks import KNOWN_DOMAINS

    own = {domain for domain, _, _ in model.ir.functions}
    return {node.domain for node in model.graph.all_nodes()} - KNOWN_DOMAINS - own
