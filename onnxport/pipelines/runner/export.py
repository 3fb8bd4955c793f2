"""Exports a framework's model to ONNX, proven against the framework's own answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from onnxport.core.errors import NoSizesError, printable
from onnxport.formats.artifact import Artifact
from onnxport.formats.manifest import Manifest
from onnxport.pipelines.environment import RUNS_ON, SOURCES, require, versions
from onnxport.pipelines.runner.clock import Clock
from onnxport.pipelines.runner.jobs import Export, check_belongs
from onnxport.pipelines.runner.model_sources import load, origin_of, reading, unchanged
from onnxport.pipelines.runner.provenance import options_of
from onnxport.pipelines.runner.report import Outcome
from onnxport.pipelines.runner.verdicts import open_judge, verdict
from onnxport.pipelines.stages import Product
from onnxport.reports.run_report import ConsultedRecord

if TYPE_CHECKING:
    from onnxport.exporters.process import SourceRuntime
    from onnxport.formats.model import Model
    from onnxport.validate.report import Report

_TARGET = "export"


def make(job: Export, folder: Path, stack: ExitStack, clock: Clock) -> Outcome:
    """Make and judge the ONNX file of `job` below `folder`; `stack` closes the framework's process and the judge."""
    from onnxport.core.child_process import RUN_TIMEOUT
    from onnxport.exporters.process import SourceRuntime

    timeout = RUN_TIMEOUT if job.validation is None else job.validation.timeout
    runtime = stack.enter_context(SourceRuntime(job.source, job.params, folder, timeout=timeout))
    if job.params.trust:
        clock.announce(f"trust {printable(job.source.name)}: code in it runs with your rights")
    with unchanged(job.source):
        with clock.phase("load"), reading(job.source):
            source = replace(job.source, kind=runtime.described.kind)  # only now known of a factory
            origin = origin_of(source)
        check_belongs(job.params, source.kind)
        require(SOURCES.get(source.kind, ()), f"exporting {job.source.name}")
        product, model = _export(job, runtime, origin.digest, folder, clock)
        if job.params.zipmap:
            from onnxport.exporters.classical.zipmap import check_classes

            check_classes(product.facts.get("classes"), job.source.name)
        judge = None
        consulted = runtime.consulted() if job.consults else None
        if job.validation is not None:
            judge = stack.enter_context(
                open_judge(source, job.validation, runtime, model, None, tell=clock.tell)
            )
        with _explain_dynamic(job):
            report = verdict(judge, source, product, clock)
    if job.params.zipmap and report.passed:
        product, report = _add_zipmap(product, report)
    record = None if consulted is None else ConsultedRecord(**vars(consulted))
    return Outcome(origin, _TARGET, product, report, _libraries(job, runtime), consulted=record)


@contextmanager
def _explain_dynamic(job: Export) -> Iterator[None]:
    """Name the dimensions of --dynamic in the error about a model that runs at no other size of them."""
    try:
        yield
    except NoSizesError as error:
        if not job.params.dynamic:
            raise
        opened = dict.fromkeys(dim for dims in job.params.dynamic.values() for dim in dims if dim)
        raise NoSizesError(
            f"{job.source.name} runs at none of the tried sizes of {', '.join(map(repr, opened))}",
            why=error.why,
            fix="leave dimensions with one possible size out of --dynamic, or give possible sizes with --shape",
        ) from error


def _export(
    job: Export, runtime: SourceRuntime, digest: str, folder: Path, clock: Clock
) -> tuple[Product, Model]:
    """Export the model, convert its opset and write it with our note in it."""
    from onnxport.optimizers.opset import convert_opset
    from onnxport.optimizers.params import NEWEST_OPSET

    raw = folder / "exported" / job.output.name
    raw.parent.mkdir()
    opset = NEWEST_OPSET if job.params.opset == "latest" else job.params.opset
    with clock.phase("export"):
        exported = runtime.export(raw, opset)
    model, _ = load(Artifact.open(exported.path))
    notes = exported.notes
    if job.params.opset is not None:
        brought = convert_opset(model, job.params.opset)
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


def _add_zipmap(product: Product, report: Report) -> tuple[Product, Report]:
    """Append a ZipMap to the proven model: dictionaries of its probabilities."""
    from onnxport.exporters.classical.zipmap import add_zipmap

    add_zipmap(product.artifact.path, product.facts["classes"])
    digest, size = product.artifact.digest(), product.artifact.size
    candidate = report.candidate.model_copy(update={"digest": digest, "size": size})
    note = "the proof covers the tensor in front of ZipMap; only ONNX Runtime runs ZipMap"
    return replace(product, notes=(*product.notes, note)), report.model_copy(update={"candidate": candidate})


def _libraries(job: Export, runtime: SourceRuntime) -> set[str]:
    return {*SOURCES.get(job.source.kind, ()), *SOURCES.get(runtime.described.kind, ()), *RUNS_ON["onnx"]}
