"""The options and the run of commands that make an artefact."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onnxport.cli.options import given_options, name_options
from onnxport.cli.output import PATH, Output, output_options, report_option

if TYPE_CHECKING:
    from onnxport.pipelines.runner.jobs import Export, Job

Command = Callable[..., int]


@dataclass(frozen=True)
class ArtifactRequest:
    """The options of a command that makes an artefact; `wishes` are keyword arguments of the job's function."""

    destination: Path | None
    options: dict[str, Any]
    wishes: dict[str, bool]
    report_files: tuple[Path, ...]
    output: Output

    def run(self, command: str, job: Callable[..., Job | Export], *subject: object) -> int:
        """Run `job`, a function of pipelines.jobs that takes `subject` first; return the exit code."""
        from onnxport.pipelines import runner
        from onnxport.reports import saving

        with saving(self.report_files, command) as save:
            with name_options():
                made = job(*subject, self.destination, self.options, **self.wishes)
            report = runner.run(made, command, self.output.progress(), save, self.output.arguments)
        self.output.run(report)
        report.check()
        return report.exit_code


def makes_artifact(
    options: Callable[[Command], Command],
    *,
    where: str,
    rejected: str = "OUT.rejected.onnx",
    timed: bool = False,
) -> Callable[[Command], Command]:
    """Add the options of a command that makes an artefact; the command gets them as one ArtifactRequest.

    `options` adds those of the params models, `where` helps with --output, `rejected` is the file that --keep-rejected
    keeps. A command whose result has lower precision is `timed` unless --no-latency is given.
    """
    further: tuple[Callable[[Command], Command], ...] = (
        click.option("-o", "--output", "destination", type=PATH, metavar="OUT", help=where),
        options,
        click.option(
            "--no-validate", is_flag=True, help="Deliver the result without a proof; its report says so."
        ),
        click.option(
            "--keep-rejected", is_flag=True, help=f"Keep a result that fails the proof, as {rejected}."
        ),
        *([_latency] if timed else []),
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
            report_files: tuple[Path, ...],
            output: Output,
            no_latency: bool = False,
            **named: Any,
        ) -> int:
            wishes = {"validate": not no_validate, "keep_rejected": keep_rejected}
            wishes |= {"latency": not no_latency} if timed else {}
            asked = given_options({name: value for name, value in named.items() if name not in own})
            request = ArtifactRequest(destination, asked, wishes, report_files, output)
            return function(**{name: named[name] for name in own if name in named}, request=request)

        command: Command = wrapped
        for option in reversed(further):
            command = option(command)
        return command

    return decorate


_latency = click.option(
    "--no-latency",
    is_flag=True,
    help="Do not time the model and the result of lower precision. This saves two seconds.",
)
