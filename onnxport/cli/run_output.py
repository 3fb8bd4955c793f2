"""The output of `onnxport run`: its lines, its reports, and the annotations for a CI service."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onnxport.cli.error_output import show_on_stderr
from onnxport.cli.output import TARGET, Output
from onnxport.core.errors import OnnxportError, printable

if TYPE_CHECKING:
    from onnxport.reports.pipeline.services import Finding, Service
    from onnxport.reports.pipeline_report import PipelineReport

SERVICES = ("none", "github", "gitlab")
_FAULTS = 50


@dataclass(frozen=True)
class Reporting:
    """The report options of a run: paths for the report, and the CI service that gets annotations."""

    paths: tuple[Path, ...]
    service: Service

    def show(self, report: PipelineReport, output: Output) -> None:
        """Print the result of a run on stdout, notes and failures on stderr, then the annotations."""
        from onnxport.reports import phrases
        from onnxport.reports.pipeline import markdown, matrix, services, terminal
        from onnxport.reports.with_urls import with_urls

        report = with_urls(report)
        folds = self.service == "gitlab"
        output.result(
            lambda: report.model_dump_json(indent=2),
            lambda: terminal.result_lines(report, detailed=output.verbose and not folds, figures=not folds),
        )
        if folds and not output.quiet and not output.json:
            show_on_stderr(services.figure_section(report, time.time()), is_command=True)
        output.notes(terminal.notes(report))
        faults, rest = phrases.cut(matrix.faults(report), len(report.nodes) if output.verbose else _FAULTS)
        for fault in faults:
            show_on_stderr(f"error: {terminal.fault_lines(fault)}")
        if rest:
            show_on_stderr(
                f"error: {phrases.count(rest, 'more failure')}; --verbose lists all, --report DIR has each"
            )
        if not report.passed:
            show_on_stderr(f"exit {report.exit_code}")
        self._annotate(services.findings(report), functools.partial(markdown.view, report))

    @contextmanager
    def refusals(self, pipeline: Path) -> Iterator[None]:
        """Annotate an error that kept the run from starting, at its line in the file."""
        try:
            yield
        except OnnxportError as error:
            if self.service != "none":
                from onnxport.reports import markdown
                from onnxport.reports.pipeline import services

                found = services.refusal_findings(error, pipeline)
                self._annotate(found, functools.partial(markdown.failure, error, "run"))
            raise

    def _annotate(self, found: Sequence[Finding], summary: Callable[[], str]) -> None:
        from onnxport.reports.pipeline import services

        try:
            for line in services.annotate(self.service, found, summary):
                show_on_stderr(line, is_command=True)
        except OnnxportError as error:  # the result of the run is valid anyway
            show_on_stderr(printable(f"note: {error}"))


def reporting_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add --report and --annotations; `function` gets them as one Reporting."""

    @click.option(
        "--report",
        "report_paths",
        type=TARGET,
        multiple=True,
        metavar="DIR|FILE",
        help="Write the report of the run into DIR in all forms, or to FILE in the form of its suffix, or to "
        "mlflow:EXPERIMENT or wandb:PROJECT.",
    )
    @click.option(
        "--annotations",
        type=click.Choice(SERVICES),
        help="CI service that gets failures as annotations at the lines of the file. [default: the one this runs in]",
    )
    @functools.wraps(function)
    def wrapped(
        *args: Any, report_paths: tuple[Path, ...], annotations: Service | None, **kwargs: Any
    ) -> int:
        return function(*args, reporting=Reporting(report_paths, annotations or _detect_service()), **kwargs)

    return wrapped


def _detect_service() -> Service:
    """Detect the CI service by its environment variables."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        return "github"
    return "gitlab" if os.environ.get("GITLAB_CI") == "true" else "none"
