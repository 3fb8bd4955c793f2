"""The options and the run of commands that make an artefact."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onnxport.cli.custom_operators import library_option, operators_option
from onnxport.cli.error_output import explain, show_on_stderr, show_traceback
from onnxport.cli.help_groups import PROOF, Option
from onnxport.cli.options import given_options, name_options
from onnxport.cli.output import TARGET, Output, output_options, report_option
from onnxport.core.errors import OnnxportError, printable

if TYPE_CHECKING:
    from onnxport.pipelines.runner.jobs import Export, Job
    from onnxport.reports.pipeline_report import PipelineReport
    from onnxport.reports.run_report import RunReport

Command = Callable[..., int]


@dataclass(frozen=True)
class ArtifactRequest:
    """The options of a command that makes an artefact; `wishes` are keyword arguments of the job's function."""

    destination: Path | None
    options: dict[str, Any]
    wishes: dict[str, Any]
    report_files: tuple[Path, ...]
    output: Output
    attests: bool = False

    def run(self, command: str, job: Callable[..., Job | Export], *subject: object) -> int:
        """Run `job`, a function of pipelines.jobs that takes `subject` first; return the exit code."""
        from onnxport.pipelines import runner
        from onnxport.reports import saving

        with saving(self.report_files, command) as save:
            with name_options():
                made = job(*subject, self.destination, self.options, **self.wishes)
            report = runner.run(made, command, self.output.progress(), save, self.output.arguments)
        self._attest(report)
        self.output.run(report)
        report.check()
        return report.exit_code

    def run_several(self, command: str, models: Sequence[Path], targets: Sequence[str]) -> int:
        """Make an artefact for each model, target and precision; return the worst exit code."""
        from onnxport.pipelines.runner import batch
        from onnxport.reports.pipeline import saving_run
        from onnxport.reports.pipeline_report import FailureRecord

        def record_failure(error: Exception) -> FailureRecord:
            if self.output.verbose:
                show_traceback(error)
            return FailureRecord(**vars(explain(error)))

        with saving_run(self.report_files) as save:
            with name_options():
                parts = batch.conversions(models, targets, self.destination, self.options, **self.wishes)
            report = batch.run_all(
                parts, command, self.output.progress(), self.output.arguments, explain=record_failure
            )
            save(report)
        self._attest(*(node.run for node in report.nodes if node.run is not None))
        self._show(report)
        return report.exit_code

    def _attest(self, *reports: RunReport) -> None:
        if self.attests:
            from onnxport.pipelines.attestation import attest

            for report in reports:
                attest(report)

    def _show(self, report: PipelineReport) -> None:
        """Print a line per artefact on stdout, notes and errors on stderr."""
        from onnxport.reports.run import terminal

        runs = [node.run for node in report.nodes if node.run is not None]

        def text() -> str:
            return "\n".join(
                terminal.result_lines(run, detailed=self.output.verbose or not run.passed) for run in runs
            )

        self.output.result(lambda: report.model_dump_json(indent=2), text)
        self.output.notes(dict.fromkeys(note for run in runs for note in terminal.notes(run)))
        for node in report.nodes:
            if reason := node.failure.message if node.failure is not None else _refusal(node.run):
                lines = "\n".join(printable(line) for line in f"{node.name}: {reason}".split("\n"))
                show_on_stderr(f"error: {lines}")
        if not report.passed:
            show_on_stderr(f"exit {report.exit_code}")


def _refusal(run: RunReport | None) -> str:
    """Return why a run's artefact was not delivered; empty where it was."""
    try:
        if run is not None:
            run.check()
    except OnnxportError as error:
        return str(error)
    return ""


def makes_artifact(
    options: Callable[[Command], Command],
    *,
    where: str,
    rejected: str = "OUT.rejected.onnx",
    timed: bool = False,
    defines: bool = False,
) -> Callable[[Command], Command]:
    """Add the options of a command that makes an artefact; the command gets them as one ArtifactRequest.

    `options` adds those of the params models, `where` helps with --output, `rejected` is the file that --keep-rejected
    keeps. A command whose result has lower precision is `timed` unless --no-latency is given. One that `defines` takes
    definitions of the model's own operators.
    """
    further: tuple[Callable[[Command], Command], ...] = (
        click.option("-o", "--output", "destination", type=TARGET, metavar="OUT", help=where),
        options,
        click.option(
            "--no-validate",
            cls=Option,
            group=PROOF,
            is_flag=True,
            help="Deliver the result without a proof; its report says so.",
        ),
        click.option(
            "--keep-rejected",
            cls=Option,
            group=PROOF,
            is_flag=True,
            help=f"Keep a result that fails the proof, as {rejected}.",
        ),
        *([_latency] if timed else []),
        click.option(
            "--attest",
            cls=Option,
            group=PROOF,
            is_flag=True,
            help="Write an in-toto statement beside the artefact, for onnxport verify --attestation.",
        ),
        *([operators_option] if defines else []),
        library_option,
        report_option,
        output_options,
    )

    def decorate(function: Command) -> Command:
        own = inspect.signature(function).parameters

        @functools.wraps(function)
        def wrapped(
            *,
            destination: Path | None,
            no_validate: bool,
            keep_rejected: bool,
            attest: bool,
            report_files: tuple[Path, ...],
            output: Output,
            no_latency: bool = False,
            operators: Path | None = None,
            **named: Any,
        ) -> int:
            wishes: dict[str, Any] = {"validate": not no_validate, "keep_rejected": keep_rejected}
            wishes |= {"latency": not no_latency} if timed else {}
            wishes |= {"operators": operators} if defines else {}
            asked = given_options({name: value for name, value in named.items() if name not in own})
            request = ArtifactRequest(destination, asked, wishes, report_files, output, attest)
            return function(**{name: named[name] for name in own if name in named}, request=request)

        command: Command = wrapped
        for option in reversed(further):
            command = option(command)
        return command

    return decorate


_latency = click.option(
    "--no-latency",
    cls=Option,
    group=PROOF,
    is_flag=True,
    help="Do not time the model and the result of lower precision. This saves two seconds.",
)
