"""`onnxport run`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from onnxport.cli import signals
from onnxport.cli.commands import subcommand
from onnxport.cli.output import PATH, Output, output_options
from onnxport.cli.run_output import Reporting, reporting_options
from onnxport.core.errors import UsageError


class Size(click.ParamType[int]):
    """Bytes, written as 800MB or 1.5GB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from onnxport.core.memory import bytes_of

        if isinstance(value, int):
            return value
        try:
            return bytes_of(value)
        except ValueError as error:
            self.fail(f"{value!r} is not a memory size; {error}", param, ctx)


SIZE = Size()


def target_option(verb: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return the option --target of a command on a pipeline."""
    text = f"{verb} only this target. May be given several times."
    return click.option("--target", "targets", multiple=True, metavar="NAME", help=text)


@subcommand(
    "run",
    "onnxport run pipeline.yaml",
    "onnxport run pipeline.yaml --target phone",
    "onnxport run pipeline.yaml --executor dask --scheduler tcp://host:8786",
)
@click.argument("pipeline", type=PATH)
@target_option("Make")
@click.option("--frozen", is_flag=True, help="Make exactly what pipeline.lock says, or fail.")
@click.option(
    "--update-sources",
    is_flag=True,
    help="Take what URLs hold now, where it differs from pipeline.lock; the lock then has the new digests.",
)
@click.option("--no-cache", is_flag=True, help="Make everything again, and keep only the artefacts.")
@click.option(
    "--paranoid",
    is_flag=True,
    help="Read every file for its digest, also large ones whose inode, size and time are those of an earlier run.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 256),
    default=1,
    metavar="N",
    help="Number of products made at a time, in processes. [default: 1]",
)
@click.option(
    "--memory-limit",
    type=SIZE,
    metavar="SIZE",
    help="Maximum estimated memory of all processes together, as 8GB. [default: most of the free memory]",
)
@click.option(
    "--executor",
    type=click.Choice(("local", "dask")),
    default="local",
    help="Where to make them: on this machine, or on the workers of a Dask cluster. [default: local]",
)
@click.option("--scheduler", metavar="ADDRESS", help="The cluster's scheduler: tcp://host:8786.")
@click.option(
    "--retries",
    type=click.IntRange(0, 100),
    default=1,
    metavar="N",
    help="Times that the cluster makes a product again after the failure of a machine. [default: 1]",
)
@click.option(
    "--remote-cache",
    envvar="ONNXPORT_REMOTE_CACHE",
    metavar="URL",
    help="Folder of products that other machines share, as s3://bucket/cache. Also $ONNXPORT_REMOTE_CACHE.",
)
@click.option(
    "--remote-cache-read-only",
    is_flag=True,
    envvar="ONNXPORT_REMOTE_CACHE_READ_ONLY",
    help="Take products from the remote cache, and write none to it. Also $ONNXPORT_REMOTE_CACHE_READ_ONLY=1.",
)
@reporting_options
@output_options
def command(
    pipeline: Path,
    targets: tuple[str, ...],
    frozen: bool,
    update_sources: bool,
    no_cache: bool,
    paranoid: bool,
    jobs: int,
    memory_limit: int | None,
    executor: str,
    scheduler: str | None,
    retries: int,
    remote_cache: str | None,
    remote_cache_read_only: bool,
    reporting: Reporting,
    output: Output,
) -> int:
    from onnxport.cli import receipts, run_receipt
    from onnxport.cli.error_output import explain, show_traceback
    from onnxport.cli.run_progress import progress_display
    from onnxport.pipelines.cache.shared_cache import SharedCache
    from onnxport.pipelines.execution.run import run
    from onnxport.reports.pipeline_report import FailureRecord

    def record_failure(error: Exception) -> FailureRecord:
        if output.verbose:
            show_traceback(error)
        return FailureRecord(**vars(explain(error)))

    if executor == "local" and scheduler is not None:
        raise UsageError("--scheduler is for a Dask cluster", fix="give --executor dask, or leave it out")
    if executor == "dask" and scheduler is None:
        fix = "give its address: --scheduler tcp://HOST:8786"
        raise UsageError("--executor dask needs a scheduler", fix=fix)
    if frozen and update_sources:
        raise UsageError("--frozen and --update-sources exclude each other", fix="leave one of them out")
    if remote_cache_read_only and not remote_cache:
        raise UsageError("--remote-cache-read-only needs --remote-cache", fix="add --remote-cache URL")
    shared = (
        SharedCache(remote_cache, writes=not remote_cache_read_only)
        if remote_cache and not no_cache
        else None
    )
    watcher = progress_display(output)
    # These options, and services, have a run read all files, or do and write things every time.
    is_plain = not (frozen or update_sources or no_cache or paranoid or scheduler or remote_cache)
    is_plain = is_plain and not reporting.paths and reporting.service == "none"
    reads = run_receipt.begin() if is_plain and receipts.is_possible() else None
    try:
        with reporting.refusals(pipeline):
            report = run(
                pipeline,
                targets=targets,
                frozen=frozen,
                update_sources=update_sources,
                cached=not no_cache,
                paranoid=paranoid,
                explain=record_failure,
                jobs=jobs,
                memory_limit=memory_limit,
                scheduler=scheduler,
                retries=retries,
                shared=shared,
                watcher=watcher,
                arguments=output.arguments,
                reports=reporting.paths,
                reads=reads,
            )
    except BaseException as error:
        if watcher is not None and isinstance(signals.error_to_show(error), KeyboardInterrupt):
            watcher.interrupted()
        raise
    finally:
        if watcher is not None:
            watcher.close()
    reporting.show(report, output)
    if reads is not None:
        run_receipt.leave(reads, report, output, reporting)
    return report.exit_code
