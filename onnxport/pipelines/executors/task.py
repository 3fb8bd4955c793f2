"""The work of one node, in a form that any process can run."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onnxport.core.errors import MachineError
from onnxport.core.user_code import Watch
from onnxport.core.user_modules import import_from
from onnxport.exporters.params import ExportParams
from onnxport.exporters.sources import Source
from onnxport.formats.artifact import SUFFIXES, Artifact, Staging
from onnxport.pipelines import runner
from onnxport.pipelines.runner.clock import Progress
from onnxport.pipelines.runner.jobs import Export, Job, Step
from onnxport.pipelines.runner.shared_references import Sharing
from onnxport.reports.run_report import ConsultedRecord, RunReport
from onnxport.validate.params import ValidateParams


@dataclass(frozen=True)
class Task:
    """One node to make.

    Attributes:
        origin: what the product is proven against.
        steps: the steps before it with their products, and its own; empty for an export.
        export: the options of an export.
        room: the empty folder for the product.
        diagnose: whether to search the ONNX node behind a failed proof.
        folder: searched first for the user's modules; the current folder unless given.
        versions: of the libraries that compute, as in the cache key.
        resources: what it needs of a worker of a cluster.
    """

    node: str
    origin: Artifact | Source
    steps: tuple[Step, ...]
    export: ExportParams | None
    validation: ValidateParams | None
    latency: bool
    room: Path
    diagnose: bool = False
    folder: Path | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, float] = field(default_factory=dict)

    @property
    def output(self) -> Path:
        gives = "onnx" if self.export is not None else self.steps[-1].stage.gives
        return self.room / f"model{SUFFIXES[gives]}"


def perform(task: Task, progress: Progress | None = None, sharing: Sharing | None = None) -> RunReport:
    """Make and judge the product of `task`, which is in the task's room afterwards if the report passed.

    Args:
        sharing: what it has in common with other tasks of this process, see runner.run.
    """
    try:
        with import_from(task.folder or Path.cwd()):
            if task.export is not None:
                assert isinstance(task.origin, Source)
                job = Export(task.origin, task.export, task.output, task.validation, consults=True)
                return runner.run(job, "run", progress)
            if not _runs_users_code(task):
                return _make(task, progress, sharing)
            # Shared answers would hide from the watch what the user's code reads.
            with Watch(_files_read(task)) as watch:
                report = _make(task, progress)
                return report.model_copy(update={"consulted": ConsultedRecord(**vars(watch.consulted()))})
    except MachineError as error:
        # The room could not be written; it is no -o of a single command.
        error.fix = error.fix.replace("give -o", "give $ONNXPORT_CACHE")
        raise
    finally:
        Staging.settled = False  # further products follow: Ctrl-C may still stop the run


def _runs_users_code(task: Task) -> bool:
    """Return whether a plugin makes it, or the user's own metric judges it."""
    asked = task.validation
    own = asked is not None and (asked.metric or any(":" in name for name in asked.budget))
    return bool(own) or task.steps[-1].stage.provider is not None


def _files_read(task: Task) -> tuple[Path, ...]:
    """Return the files named by its options: their contents are known before it runs."""
    assert isinstance(task.origin, Artifact)
    made = [file for step in task.steps if step.made for file in step.made.files]
    options = [value for step in task.steps for _, value in step.params]
    asked = [value for _, value in task.validation] if task.validation is not None else []
    mapped = [each for value in options if isinstance(value, dict) for each in value.values()]
    return tuple(
        each for each in (*task.origin.files, *made, *options, *asked, *mapped) if isinstance(each, Path)
    )


def _make(task: Task, progress: Progress | None, sharing: Sharing | None = None) -> RunReport:
    """Make a stage's product; diagnose and remove a rejected one."""
    assert isinstance(task.origin, Artifact)
    job = Job(
        task.origin,
        task.steps,
        task.output,
        task.validation,
        keep_rejected=task.diagnose,
        latency=task.latency,
    )
    report = runner.run(job, "run", progress, sharing=sharing)
    if report.passed or not task.diagnose or task.validation is None:
        return report
    from onnxport.pipelines.runner.diagnosis import add_diagnosis

    try:
        return add_diagnosis(report, task.origin, task.steps, task.validation, progress)
    finally:
        shutil.rmtree(task.room, ignore_errors=True)
