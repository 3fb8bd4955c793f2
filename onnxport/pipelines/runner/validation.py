"""Runs that make nothing: judge two artefacts, and find where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onnxport.core.child_process import reuse_children
from onnxport.formats.artifact import Artifact
from onnxport.pipelines.environment import RUNS_ON, require, runtime_libraries
from onnxport.pipelines.runner.clock import Clock, Progress
from onnxport.pipelines.runner.model_sources import load, origin_of, reading, unchanged
from onnxport.pipelines.runner.report import record_of, run_report
from onnxport.pipelines.runner.verdicts import open_judge, start_reference, verdict
from onnxport.pipelines.stages import Product
from onnxport.reports.run_report import RunReport

_SETS = 8  # whose sizes a form may have

if TYPE_CHECKING:
    from onnxport.core.arrays import Feeds
    from onnxport.formats.model import Model
    from onnxport.validate.debug.params import DebugParams
    from onnxport.validate.params import ValidateParams


def validate(
    reference: Artifact,
    candidate: Artifact,
    params: ValidateParams,
    progress: Progress | None = None,
    arguments: Sequence[str] = (),
) -> RunReport:
    """Judge `candidate` against `reference`; change no file."""
    clock = Clock(progress)
    for artifact in (reference, candidate):
        require(RUNS_ON[artifact.format], f"running {artifact.path}")
    with reuse_children(), start_reference(reference, params) as runtime:
        with clock.phase("load"):
            with reading(reference):
                graph, reference = _load(reference)
                origin = origin_of(reference)
            with reading(candidate):
                _, candidate = _load(candidate)
        product = Product(candidate)
        with (
            unchanged(reference, candidate),
            open_judge(reference, params, runtime, graph, candidate, tell=clock.tell) as judge,
        ):
            report = verdict(judge, reference, product, clock)
    record = record_of(product, candidate.path, "", report, origin, clock)
    libraries = {*RUNS_ON[reference.format], *RUNS_ON[candidate.format], *runtime_libraries(params)}
    return run_report(("validate", *arguments), origin, (record,), libraries, clock)


def debug(
    reference: Artifact,
    candidate: Artifact,
    params: DebugParams,
    output: Path | None = None,
    progress: Progress | None = None,
    arguments: Sequence[str] = (),
) -> RunReport:
    """Validate with a diagnosis in the report; write the node at fault to the folder `output`, if given."""
    from onnxport.validate.debug.diagnosis import diagnose

    clock = Clock(progress)
    libraries = {*RUNS_ON["onnx"], *RUNS_ON[reference.format], *RUNS_ON[candidate.format]}
    require(libraries, f"comparing {candidate.path} with {reference.path}")
    with clock.phase("load"), reading(reference):
        graph, reference = _load(reference)
        origin = origin_of(reference)
    with reading(candidate):
        if candidate.format == "onnx":
            with clock.phase("load"):
                _, candidate = load(candidate)
        with unchanged(reference, candidate):
            report = diagnose(reference, candidate, params, graph, output, clock.phase, clock.tell)
    record = record_of(Product(candidate), candidate.path, "", report, origin, clock)
    libraries |= {*runtime_libraries(params)}
    return run_report(("debug", *arguments), origin, (record,), libraries, clock)


def input_sets(
    reference: Artifact, candidate: Artifact, params: ValidateParams, progress: Progress | None = None
) -> list[Feeds]:
    """Return the inputs on which `candidate` would be judged, without companions."""
    clock = Clock(progress)
    require({*RUNS_ON[reference.format], *RUNS_ON[candidate.format]}, f"reading {candidate.path}")
    with reuse_children(), start_reference(reference, params) as runtime, reading(reference):
        graph, reference = _load(reference)
        with open_judge(reference, params, runtime, graph, candidate, tell=clock.tell) as judge:
            sets = [each for each in judge.reference.sets if each.is_usual]
            return [each.load().feeds for each in sets[:_SETS]]


def _load(artifact: Artifact) -> tuple[Model | None, Artifact]:
    """Return the graph of an ONNX file, None for other formats, and the artefact with all its files."""
    return load(artifact) if artifact.format == "onnx" else (None, artifact)
