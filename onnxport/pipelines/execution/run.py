"""Runs a pipeline from its file to its report: `onnxport run` and `run_pipeline`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from onnxport.core.child_process import reuse_children
from onnxport.core.errors import UsageError
from onnxport.core.reads import Reads, recording
from onnxport.core.scratch import ScratchFolder
from onnxport.core.user_modules import import_from
from onnxport.pipelines.cache import Cache, folder_beside, timings_beside
from onnxport.pipelines.cache.shared_cache import SharedCache
from onnxport.pipelines.config.pipeline import Cell, Pipeline
from onnxport.pipelines.config.reader import read
from onnxport.pipelines.execution.latency import Timings
from onnxport.pipelines.execution.scheduler import Scheduler
from onnxport.pipelines.executors.base import Local, Unwatched, Watcher
from onnxport.pipelines.executors.memory import default_limit
from onnxport.pipelines.executors.processes import Processes
from onnxport.pipelines.failures import failure_of
from onnxport.pipelines.graph.digests import code_in_use, recall_digests
from onnxport.pipelines.graph.known_digests import KnownDigests
from onnxport.pipelines.lock.enforcement import LockGuard
from onnxport.quantize.params import check_address
from onnxport.reports.pipeline import saving_run
from onnxport.reports.pipeline_report import FailureRecord, PipelineReport

if TYPE_CHECKING:
    from onnxport.pipelines.executors.dask import Cluster


def run(
    path: Path,
    *,
    targets: Collection[str] = (),
    frozen: bool = False,
    update_sources: bool = False,
    cached: bool = True,
    paranoid: bool = False,
    explain: Callable[[Exception], FailureRecord] | None = None,
    jobs: int = 1,
    memory_limit: int | None = None,
    scheduler: str | None = None,
    retries: int = 1,
    shared: SharedCache | None = None,
    watcher: Watcher | None = None,
    arguments: Sequence[str] = (),
    reports: Sequence[Path] = (),
    reads: Reads | None = None,
) -> PipelineReport:
    """Make the artefacts of the pipeline at `path`, and write its reports.

    Args:
        targets: see `select_cells`.
        frozen: whether everything must match the lock (lock/enforcement.py).
        update_sources: whether URLs may have other content than the lock says.
        cached: whether to reuse products of earlier runs and to keep those of this one.
        paranoid: whether to read every file for its digest, also one that is unchanged by inode, size and time since an
            earlier run read it (graph/known_digests.py). Implied by `frozen` and by `cached=False`.
        explain: describes an error that ends a node; failure_of unless given.
        jobs: number of nodes made at a time; from two on in separate processes.
        memory_limit: bytes for all of these together; most of the free memory unless given.
        scheduler: the address of a Dask scheduler whose workers make the nodes instead.
        retries: of a node that a worker's machine failed.
        shared: a cache of other machines, beside the one here.
        reports: further files and folders for the report, as reports.pipeline takes them.
        reads: notes what the run reads and writes.

    Raises:
        UsageError, InputError: the file is wrong; nothing has run.
        MissingDependencyError, MachineError: the cluster cannot be used; nothing has run.
    """
    watcher = watcher or Unwatched()
    explain = explain or (lambda error: FailureRecord(**vars(failure_of(error))))
    recalls = cached and not (paranoid or frozen)
    with ExitStack() as saving:
        saving.enter_context(recording(reads))
        saving.enter_context(recall_digests(KnownDigests.of_user() if recalls else None))
        save = saving.enter_context(saving_run(reports))
        ScratchFolder.sweep()  # a run that finds all in the cache makes none
        pipeline = read(path)
        cells = select_cells(pipeline, targets)
        save_own = saving.enter_context(saving_run(pipeline.reports, besides=reports))
        guard = LockGuard(pipeline, cells, frozen=frozen, update_sources=update_sources)
        timings = Timings(timings_beside(path) if cached else None)
        with (
            Cache(folder_beside(path), shared=shared) if cached else Cache.apart() as cache,
            _executor(jobs, memory_limit, scheduler, retries, watcher) as executor,
            import_from(pipeline.folder),
            reuse_children(several_jobs=True),
        ):
            jobs = getattr(executor, "jobs", jobs)  # of a cluster: as many as it has workers
            run_scheduler = Scheduler(pipeline, cache, executor, explain, watcher, guard, jobs, timings)
            report = run_scheduler.run(cells, arguments)
            guard.close()
            if reads is not None:
                _note_rest(reads, pipeline, run_scheduler)
        if shared is not None:
            report = report.model_copy(update={"notes": tuple(shared.notes)})
        save(report)
        save_own(report)
    return report


def _note_rest(reads: Reads, pipeline: Pipeline, scheduler: Scheduler) -> None:
    """Note what only the engine knows at the end of a run."""
    reads.kept |= dict.fromkeys(str(entry.place.absolute()) for entry in scheduler.entries.values())
    if pipeline.reports:
        reads.doubts.add("each run writes its reports")
    for record in scheduler.records.values():
        run = record.open().run
        if run is not None and run.consulted is not None:
            reads.look(partial(code_in_use, run.consulted, pipeline.folder))


def _executor(
    jobs: int, memory_limit: int | None, scheduler: str | None, retries: int, watcher: Watcher
) -> Local | Processes | Cluster:
    """Return the executor that the options ask for; UsageError for limits of this machine on a cluster."""
    if scheduler is not None:
        if jobs > 1 or memory_limit is not None:
            fix = "leave them out: a cluster has its own number of workers"
            raise UsageError("--jobs and --memory-limit apply to this machine only", fix=fix)
        from onnxport.pipelines.executors.dask import Cluster  # imports the libraries that calibrate

        return Cluster(check_address(scheduler), watcher, retries)
    return Local(watcher) if jobs == 1 else Processes(jobs, memory_limit or default_limit(), watcher)


def select_cells(pipeline: Pipeline, targets: Collection[str]) -> tuple[Cell, ...]:
    """Return the cells of `targets`, as TARGET, MODEL/TARGET or MODEL/TARGET/VALUE; all cells if none are given."""
    if not targets:
        return pipeline.cells
    for name in targets:
        if not any(name in _names(cell) for cell in pipeline.cells):
            known = dict.fromkeys(cell.target for cell in pipeline.cells)
            names = dict.fromkeys(each for cell in pipeline.cells for each in _names(cell))
            near = difflib.get_close_matches(name, names, n=1)
            fix = f"did you mean {near[0]!r}?" if near else f"targets are {', '.join(known)}"
            raise UsageError(f"there is no target {name!r}", fix=fix)
    return tuple(cell for cell in pipeline.cells if any(name in targets for name in _names(cell)))


def _names(cell: Cell) -> tuple[str, ...]:
    return (cell.target, f"{cell.model}/{cell.target}", cell.name)
