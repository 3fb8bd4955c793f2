"""Runs an export: a framework's model becomes an ONNX file, which its framework's answers have to prove."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxport.core.errors import NoSizesError, UsageError
from onnxport.exporters.params import BELONGS, ExportParams
from onnxport.exporters.sources import CONTAINERS, KINDS, Source
from onnxport.formats.artifact import Artifact, Staging, path_of
from onnxport.formats.manifest import Manifest
from onnxport.pipelines.background_judge import JudgeAhead, verdict
from onnxport.pipelines.environment import RUNS_ON, SOURCES, require, versions
from onnxport.pipelines.jobs import check_waivable, fields_of
from onnxport.pipelines.model_sources import load, origin_of, reading, unchanged
from onnxport.pipelines.params import check_known, params_of
from onnxport.pipelines.provenance import options_of
from onnxport.pipelines.report_assembly import moves, named_for, record_of, run_report
from onnxport.pipelines.stages import Product
from onnxport.pipelines.step_times import Clock, Progress
from onnxport.reports.run_report import ConsultedRecord, RunReport
from onnxport.validate.params import ValidateParams

if TYPE_CHECKING:
    from onnxport.exporters.process import SourceRuntime
    from onnxport.formats.model import Model
    from onnxport.validate.report import Report

_TARGET = "export"


@dataclass(frozen=True)
class Export:
    """One ONNX file to make of a framework's model; see jobs.Job.

    Attributes:
        consults: whether the report is to say what the model's code is and read.
    """

    source: Source
    params: ExportParams
    output: Path
    validation: ValidateParams | None
    keep_rejected: bool = False
    consults: bool = False


def export_job(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str] | None,
    options: Mapping[str, Any],
    *,
    validate: bool = True,
    keep_rejected: bool = False,
) -> Export:
    """The job of `onnxport export` and `export_model`.

    Raises:
        UsageError: an unknown option, a value that an option refuses, or one that says nothing to this kind of model.
        InputError: the source is missing, unreadable or of no kind that is known.
    """
    purpose = "export"
    check_known(options, ExportParams, ValidateParams, purpose=purpose)
    params = params_of(ExportParams, fields_of(ExportParams, options), purpose=purpose)
    validation = params_of(ValidateParams, fields_of(ValidateParams, options), purpose=purpose)
    if not validate:
        check_waivable(options)
    found = Source.of(source, params.weights)
    if params.arg and not found.is_factory:
        raise UsageError(
            f"--arg is for a factory, and {found.name} is {KINDS[found.kind]}", fix="leave it out"
        )
    if found.kind not in CONTAINERS:
        check_belongs(params, found.kind)
    chosen = (
        path_of(output, "the output", fix="give the path of the file to write") if output else _beside(found)
    )
    if chosen.suffix.lower() != ".onnx":
        raise UsageError(f"the output {chosen} does not end in .onnx", fix="its name has to tell its format")
    return Export(found, params, chosen, validation if validate else None, keep_rejected)


def _beside(source: Source) -> Path:
    """<file>.onnx beside a file or folder; <function>.onnx in the current folder for a factory."""
    if source.is_factory:
        return Path(f"{source.name.partition(':')[2].rpartition('.')[2]}.onnx")
    return source.path.with_suffix(".onnx")


def check_belongs(params: ExportParams, kind: str) -> None:
    """Refuses options that say nothing to a kind of model (UsageError)."""
    for name in params.model_fields_set & set(BELONGS):
        if kind not in BELONGS[name]:
            raise UsageError(
                f"--{name.replace('_', '-')} says nothing to {KINDS[kind]}",
                fix=f"leave it out: it is for {' and '.join(sorted(BELONGS[name]))}",
            )


def run(
    job: Export,
    command: str,
    progress: Progress | None = None,
    save: Callable[[RunReport], None] = lambda report: None,
    arguments: Sequence[str] = (),
) -> RunReport:
    """Makes the ONNX file of `job`; it is at `job.output` afterwards only if the report says it passed."""
    from onnxport.core.child_process import RUN_TIMEOUT
    from onnxport.exporters.process import SourceRuntime

    clock = Clock(progress)
    kind = job.source.kind
    require(SOURCES.get(kind, ()), f"exporting {job.source.name}")
    timeout = RUN_TIMEOUT if job.validation is None else job.validation.timeout
    with Staging(job.output) as staging, ExitStack() as stack:
        runtime = stack.enter_context(SourceRuntime(job.source, job.params, timeout=timeout))
        with unchanged(job.source):
            with clock.phase("load"), reading(job.source):
                # Of a factory it was not known before.
                found = replace(job.source, kind=runtime.described.kind)
                origin = origin_of(found)
            check_belongs(job.params, found.kind)
            require(SOURCES.get(found.kind, ()), f"exporting {job.source.name}")
            product, model = _exported(job, runtime, origin.digest, staging.folder, clock)
            if job.params.zipmap:
                from onnxport.exporters.classical.zipmap import check_classes

                check_classes(product.facts.get("classes"), job.source.name)
            judge = None
            consulted = runtime.consulted() if job.consults else None
            if job.validation is not None:
                judge = stack.enter_context(
                    JudgeAhead(found, job.validation, runtime, model, None, tell=clock.searching)
                )
            with _naming_dynamic(job):
                report = verdict(judge, found, product, clock)
        final = job.output if report.passed else _rejected(job)
        if job.params.zipmap and report.passed:
            product, report = _zipped(product, report)
        product, report = named_for(product, report, final)
        record = record_of(product, final, _TARGET, report, origin, clock)
        whole = run_report((command, *arguments), origin, (record,), _libraries(job, runtime), clock)
        if consulted is not None:
            whole = whole.model_copy(update={"consulted": ConsultedRecord(**vars(consulted))})
        save(whole)
        if final is not None:
            staging.commit(moves(product.artifact, final))
    return whole


@contextmanager
def _naming_dynamic(job: Export) -> Iterator[None]:
    """Dimensions that the user opened and at no other size of which the model runs: the way out is not to open them."""
    try:
        yield
    except NoSizesError as error:
        if not job.params.dynamic:
            raise
        opened = dict.fromkeys(dim for dims in job.params.dynamic.values() for dim in dims if dim)
        raise NoSizesError(
            f"{job.source.name} runs at none of the sizes that were tried for {', '.join(map(repr, opened))}",
            why=error.why,
            fix="leave what it takes in one size only out of --dynamic, or give sizes that it takes with --shape",
        ) from error


def _exported(
    job: Export, runtime: SourceRuntime, digest: str, folder: Path, clock: Clock
) -> tuple[Product, Model]:
    """What the exporter wrote, at the opset asked for and with our note in it."""
    from onnxport.optimizers.opset import brought_to
    from onnxport.optimizers.params import NEWEST_OPSET

    raw = folder / "exported" / job.output.name
    raw.parent.mkdir()
    opset = NEWEST_OPSET if job.params.opset == "latest" else job.params.opset
    with clock.phase("export"):
        exported = runtime.export(raw, opset)
    model, _ = load(Artifact.open(exported.path))
    notes = exported.notes
    if job.params.opset is not None:
        brought = brought_to(model, job.params.opset)
        model, notes = brought.model, (*notes, *brought.notes)
    manifest = Manifest(
        source=digest,
        made_by=versions(_libraries(job, runtime)),
        options=options_of([(_TARGET, job.params)]),
        validation="skipped" if job.validation is None else "required",
    )
    with clock.phase("write"):
        (folder / "0").mkdir()
        artifact = model.noted(manifest, runtime).save(folder / "0" / job.output.name)
    return Product(artifact, notes, exported.facts), load(artifact)[0]


def _zipped(product: Product, report: Report) -> tuple[Product, Report]:
    """What was proven, with dictionaries behind its probabilities."""
    from onnxport.exporters.classical.zipmap import add_zipmap

    add_zipmap(product.artifact.path, product.facts["classes"])
    digest, size = product.artifact.digest(), product.artifact.size
    candidate = report.candidate.model_copy(update={"digest": digest, "size": size})
    note = "proven is the tensor that ZipMap makes dictionaries of; no target but ONNX Runtime takes these"
    return replace(product, notes=(*product.notes, note)), report.model_copy(update={"candidate": candidate})


def _rejected(job: Export) -> Path | None:
    return job.output.with_suffix(".rejected.onnx") if job.keep_rejected else None


def _libraries(job: Export, runtime: SourceRuntime) -> set[str]:
    return {*SOURCES.get(job.source.kind, ()), *SOURCES.get(runtime.described.kind, ()), *RUNS_ON["onnx"]}
