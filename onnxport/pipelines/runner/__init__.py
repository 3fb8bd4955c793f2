"""The runner: makes what a job asks for and delivers it only if the judge accepts it.

Every command that makes an artefact goes through `run`: source -> steps -> verdict -> commit. All files are written
below a private folder beside the output until the verdict. An error anywhere, or Ctrl-C, leaves nothing behind. The
runner prints nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from onnxport.core.child_process import reuse_children
from onnxport.formats.artifact import Staging
from onnxport.pipelines.environment import SOURCES, require
from onnxport.pipelines.runner.clock import Clock, Progress
from onnxport.pipelines.runner.report import commit
from onnxport.reports.run_report import RunReport

if TYPE_CHECKING:
    from onnxport.pipelines.runner.jobs import Export, Job
    from onnxport.pipelines.runner.shared_references import Sharing


def run(
    job: Job | Export,
    command: str,
    progress: Progress | None = None,
    save: Callable[[RunReport], None] = lambda report: None,
    arguments: Sequence[str] = (),
    sharing: Sharing | None = None,
) -> RunReport:
    """Make the artefact of `job`. Afterwards it is at `job.output` only if the report passed.

    Args:
        sharing: what the job has in common with others, see batch.py; None for a single job.
        arguments: the command line behind the command's name, for the report.
        save: stores the report before the artefact is delivered; if it fails, nothing is delivered.
    """
    from onnxport.pipelines.runner import export, extraction, steps
    from onnxport.pipelines.runner.jobs import Export, Extraction

    clock = Clock(progress)
    if isinstance(job, Export):
        require(SOURCES.get(job.source.kind, ()), f"exporting {job.source.name}")
    with reuse_children(), Staging(job.output, folder=job.is_folder) as staging, ExitStack() as stack:
        if isinstance(job, Export):
            outcome = export.make(job, staging.folder, stack, clock)
        elif isinstance(job, Extraction):
            outcome = extraction.make(job, staging.folder, stack, clock)
        else:
            outcome = steps.make(job, staging.folder, stack, clock, sharing)
        final = job.destination(passed=outcome.passed)
        outcome = outcome.renamed(final)
        report = outcome.run_report((command, *arguments), final, clock)
        save(report)
        if final is not None:
            commit(staging, outcome.product.artifact, final)
    return report
