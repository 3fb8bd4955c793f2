"""Runs `onnxport init`: from the named model to the written files."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from onnxport.core.errors import CannotConvertError, MachineError, UsageError, printable
from onnxport.core.scratch import ScratchFolder
from onnxport.core.shell_words import join
from onnxport.formats.artifact import SUFFIXES, Artifact, Staging, path_of
from onnxport.formats.manifest import Manifest
from onnxport.pipelines.config.json_schema import schema
from onnxport.pipelines.environment import RUNS_ON, missing
from onnxport.pipelines.environment import TARGETS as LIBRARIES
from onnxport.pipelines.init.files import (
    SCHEMA,
    Plan,
    check_absent,
    package_of,
    pipeline_text,
    workflow_text,
    write,
)
from onnxport.pipelines.init.hosts import GITLAB_PART, Host, project_of
from onnxport.pipelines.init.installation import local_origin
from onnxport.pipelines.init.model_summary import ENOUGH, FOLDER, Samples, find_samples_of, summarize
from onnxport.pipelines.registry import TARGETS, open_worker
from onnxport.pipelines.runner.clock import Clock, Progress
from onnxport.pipelines.runner.model_sources import load, reading
from onnxport.pipelines.stages import Work

_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class Created:
    """The result of `onnxport init`.

    Attributes:
        written: the pipeline's file first.
        models: their sources in the file.
        targets: the ones that are switched on.
        command: the next command.
    """

    written: tuple[Path, ...]
    models: tuple[str, ...]
    targets: tuple[str, ...]
    notes: tuple[str, ...]
    command: str


def create_project(
    model: str | None, output: Path, host: Host | None, *, force: bool, progress: Progress | None = None
) -> Created:
    """Write `output` and a workflow for `host`.

    Args:
        model: as the user named it; None for the .onnx files beside `output`.
        host: None for the project's own.

    Raises:
        UsageError, InputError: an output file exists already, or the model is missing or unreadable.
        MachineError: the files cannot be written.
    """
    path_of(output, "the output", fix="give -o a file name")
    if output.suffix.lower() not in _SUFFIXES:
        raise UsageError(f"the output {output} does not end in .yaml", fix="give -o pipeline.yaml")
    Staging(output).check()  # before the model is read and converted, which takes seconds
    project = project_of(output.parent)
    host = host or project.host
    workflow = project.workflow(host)
    workflow = None if workflow is None else _relative(workflow)
    if not force:
        check_absent([output] if workflow is None else [output, workflow])
    plan = _plan(model, output, progress)
    texts = {output: pipeline_text(plan)}
    if workflow is not None:
        texts[workflow] = workflow_text(plan, host, project)
    described = output.with_name(SCHEMA)
    if force or not described.exists():
        texts[described] = schema()
    write(texts)
    return Created(
        written=tuple(texts),
        models=tuple(each.source for each in plan.looks),
        targets=plan.targets,
        notes=tuple(_notes(plan, workflow)),
        command=join(("onnxport", "run", output)),
    )


def _plan(model: str | None, output: Path, progress: Progress | None) -> Plan:
    folder = output.parent
    given = [model] if model is not None else [str(path) for path in sorted(folder.glob("*.onnx"))]
    lacks = missing_targets()
    possible = [name for name in TARGETS if name not in lacks]
    looks, refused = [], {}
    for each in given:
        found, artifact = summarize(each, folder)
        looks.append(found)
        if artifact is not None:
            refused[found.name] = refusals(artifact, possible, progress)
    samples = find_samples_of(looks[0], folder) if len(looks) == 1 else Samples()
    return Plan(output, tuple(looks), samples, lacks, refused)


def _notes(plan: Plan, workflow: Path | None) -> Iterator[str]:
    if not plan.looks:
        yield f"there is no .onnx file here: name your model in {plan.file}"
    if any(look.kind in ("pytorch", "python") for look in plan.looks):
        yield f"describe the model's inputs in {plan.file}: export.input"
    for name in plan.lacking:
        yield f"{name} is switched off: {plan.lacking[name]}"
    for model, reasons in plan.refused.items():
        yield from (f"{name} is switched off for {model}: {reason}" for name, reason in reasons.items())
    if plan.samples.why_not:
        yield f"the folder {FOLDER} is left out: {plan.samples.why_not}"
    if plan.samples.is_file:
        most = "the first " if plan.samples.count >= ENOUGH else ""
        yield f"the samples are the rows of {plan.samples.place}: {most}{plan.samples.count} fit the model"
    if plan.samples.preprocess:
        yield f"how pictures become inputs is a guess: see preprocess in {plan.file}"
    if workflow is not None and (origin := local_origin()):
        yield (
            f"{workflow} installs onnxport from the package index, this one came from {origin}: name a place that CI "
            f"reaches, as '{package_of(plan)} @ git+URL', in its Install step"
        )
    if workflow is not None and workflow.parts[-2:] == GITLAB_PART.parts:
        yield f"GitLab reads it when .gitlab-ci.yml says: include: [{{local: {GITLAB_PART.as_posix()}}}]"


def _relative(path: Path) -> Path:
    """Return the path from the current folder, if that is shorter."""
    relative = Path(os.path.relpath(path))
    return path if len(relative.parts) > len(path.parts) else relative


# Bytes of weights. A larger model would take minutes; it is assumed to convert.
_LARGEST = 256 * 2**20


def missing_targets() -> dict[str, str]:
    """Return the targets that cannot be made and proven on this machine, with the remedy."""
    absent = {name: missing(dict.fromkeys((*LIBRARIES[name], *RUNS_ON[name]))) for name in TARGETS}
    return {
        name: f"{each[0].name} is not installed; {each[0].remedy}" for name, each in absent.items() if each
    }


def refusals(model: Artifact, targets: Collection[str], progress: Progress | None = None) -> dict[str, str]:
    """Return the `targets` that refuse the model, with the reason; InputError if ONNX Runtime cannot load it."""
    if model.size > _LARGEST:
        return {}
    clock = Clock(progress)
    refused = {}
    with ScratchFolder() as folder, ExitStack() as stack:
        workers = {name: stack.enter_context(open_worker(TARGETS[name])) for name in targets}
        with clock.phase("load"), reading(model):
            graph, whole = load(model)
        for name, worker in workers.items():
            stage = TARGETS[name]
            output = Path(folder, name, f"model{SUFFIXES[stage.gives]}")
            output.parent.mkdir()
            manifest = Manifest(source=whole.digest(), made_by={}, options={}, validation="skipped")
            try:
                with clock.phase(f"try {name}"):
                    worker(graph, stage.params(), Work(output, manifest, None, Clock(None)))
            except (CannotConvertError, MachineError, UsageError) as error:
                refused[name] = _reason(error)
    return refused


def _reason(error: CannotConvertError | MachineError | UsageError) -> str:
    if isinstance(error, CannotConvertError) and error.refusals:
        first, *others = error.refusals
        more = f", and {len(others)} more" if others else ""
        return printable(f"{first.op} {first.node!r}: {first.why}{more}")
    return printable(str(error).splitlines()[0])
