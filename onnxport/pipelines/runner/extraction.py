"""Extracts a part of a model, proven against the values that the whole model has there."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from onnxport.formats.model import Model
    from onnxport.validate.params import ValidateParams
    from onnxport.validate.part import PartJudge


def make(job: Extraction, folder: Path, stack: ExitStack, clock: Clock) -> Outcome:
    """Make and judge the part that `job` asks for below `folder`; `stack` closes the worker and the judge."""
    (step,) = job.steps
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
        judge = None
        if job.validation is not None:
            part, _ = load(product.artifact)
            judge = stack.enter_context(_open_judge(source, model, part, job.validation, folder, clock))
        report = verdict(judge, source, product, clock)
    notes = tuple(note.replace("--inputs DIR", "--samples-from DIR") for note in report.notes)
    report = report.model_copy(update={"notes": notes})
    return Outcome(origin, step.stage.name, product, report, {*step.stage.libraries, *RUNS_ON["onnx"]})


def _open_judge(
    source: Artifact, model: Model, part: Model, params: ValidateParams, folder: Path, clock: Clock
) -> PartJudge:
    """Open the judge; the whole model runs up to the part's outputs where ONNX Runtime lacks what is behind."""
    from onnxport.optimizers.extraction import front_of
    from onnxport.optimizers.shape_inference import KNOWN_DOMAINS
    from onnxport.runtimes.custom_libraries import libraries
    from onnxport.validate.part import PartJudge

    front = front_of(model, [spec.name for spec in part.outputs])
    for value, typed in zip(front.graph.outputs, part.graph.outputs, strict=True):
        value.type, value.shape = typed.type, typed.shape
    whole = source
    domains = [
        {node.domain for node in each.graph.all_nodes()} - KNOWN_DOMAINS - _own_domains(each)
        for each in (model, front)
    ]
    if domains[0] > domains[1] and not libraries():
        whole = front.save(folder / "front.onnx")
    return PartJudge(source, params, start_reference(whole, params), front, part, clock.tell)


def _own_domains(model: Model) -> set[str]:
    """Return the domains of the model's own functions."""
    return {domain for domain, _, _ in model.ir.functions}
