"""The output of commands and its options: results on stdout, progress and notes on stderr.

It needs no pydantic, so `onnxport doctor` can report that it is missing.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onnxport.cli import signals
from onnxport.cli.commands import ARGUMENTS
from onnxport.cli.error_output import inert_document, show_on_stderr, show_on_stdout
from onnxport.cli.help_groups import OUTPUT, Option
from onnxport.core.errors import printable
from onnxport.core.limits import limits, parse
from onnxport.core.urls import is_url, without_queries

if TYPE_CHECKING:
    from onnxport.pipelines.runner.clock import Progress
    from onnxport.reports.run_report import RunReport


_MEANINGFUL = 1.0  # seconds after which the pace predicts the rest


class GivenPath(click.Path):
    """A path without checks: the code that opens it reports errors with the right exit code."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":  # pathlib reads it as the current folder
            self.fail("the path is empty", param, ctx)
        if is_url(value):
            self.fail("a URL is not possible here; give a path", param, ctx)
        return super().convert(value, param, ctx)


class SourcePath(GivenPath):
    """A path or URL of a file or folder to read: of a URL its local copy."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from onnxport.formats.remote import fetch

        return super().convert(fetch(value), param, ctx)


class TargetPath(GivenPath):
    """A path or URL to write."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from onnxport.formats.remote import place_for

        return super().convert(place_for(value), param, ctx)


PATH = GivenPath(path_type=Path, readable=False)
SOURCE = SourcePath(path_type=Path, readable=False)
TARGET = TargetPath(path_type=Path, readable=False)


@dataclass(frozen=True)
class Output:
    """The output options of a command, and the words behind its name."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False
    arguments: tuple[str, ...] = ()

    def result(
        self, document: Callable[[], str], text: Callable[[], str], *, is_document: bool = False
    ) -> None:
        """Print the result on stdout, as a JSON document or as text.

        Args:
            is_document: whether the text is for programs as well: it keeps long names whole.
        """
        signals.mark_answered()
        if self.json:
            show_on_stdout(inert_document(document()), is_document=True)
        elif not self.quiet:
            show_on_stdout(text(), is_document=is_document)

    def run(self, report: RunReport, more: Callable[[], str] | None = None) -> None:
        """Print the result of a run: the document, or a line per artefact with its notes.

        After a failed proof, or with --verbose, `more` or the figures of every output follow.
        """
        from onnxport.reports.run.terminal import notes, result_lines

        def text() -> str:
            detailed = self.verbose or (more is None and not report.passed)
            lines = result_lines(report, detailed=detailed)
            return lines if more is None else f"{lines}\n{more()}"

        self.result(lambda: report.model_dump_json(indent=2), text)
        self.notes(notes(report))

    def notes(self, lines: Iterable[str]) -> None:
        """Print notes beside a result in text on stderr."""
        if not self.quiet and not self.json:
            for line in lines:
                show_on_stderr(printable(line))

    def progress(self) -> Progress | None:
        """Return the progress display for this terminal; None for --quiet."""
        if self.quiet:
            return None
        if sys.stderr.isatty() and not self.verbose and os.environ.get("TERM") != "dumb":
            return Spinner()
        return PlainLines(timings=self.verbose)


_flag = functools.partial(click.option, cls=Option, group=OUTPUT, is_flag=True)


def output_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add --limit, and --json, --quiet and --verbose, which `function` gets as one Output."""

    @click.option(
        "--limit",
        "raised",
        cls=Option,
        group=OUTPUT,
        multiple=True,
        is_eager=True,  # URLs are fetched while the other options are read
        expose_value=False,
        callback=_raise_limits,
        metavar="NAME=VALUE",
        help="Raise a limit on untrusted files; the error that it causes gives its name.",
    )
    @_flag("--json", help="Print one JSON document on stdout and nothing else.")
    @_flag("-q", "--quiet", help="Print errors only.")
    @_flag("-v", "--verbose", help="Print more: timings, and tracebacks of errors.")
    @functools.wraps(function)
    def run_with_output(*args: Any, json: bool, quiet: bool, verbose: bool, **kwargs: Any) -> int:
        if quiet and verbose:
            raise click.UsageError("--quiet and --verbose exclude each other", click.get_current_context())
        with _library_logs(verbose):
            output = Output(json=json, quiet=quiet, verbose=verbose, arguments=_arguments())
            return function(*args, output=output, **kwargs)

    return run_with_output


def _raise_limits(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> None:
    context.with_resource(limits(**parse(",".join(given))))


def _arguments() -> tuple[str, ...]:
    context = click.get_current_context()
    words: tuple[str, ...] = context.find_root().meta[ARGUMENTS]
    own = words[words.index(context.info_name) + 1 :]
    # Reports cannot hold a path that is no UTF-8.
    return tuple(without_queries(word).encode(errors="backslashreplace").decode() for word in own)


@contextmanager
def _library_logs(allowed: bool) -> Iterator[None]:
    """Drop messages that libraries log without a handler, unless `allowed`."""
    import logging

    kept = logging.lastResort
    logging.lastResort = kept if allowed else None
    # Without a last resort, logging complains once on stderr about the missing handler.
    raised, logging.raiseExceptions = logging.raiseExceptions, allowed
    try:
        yield
    finally:
        logging.lastResort, logging.raiseExceptions = kept, raised


report_option = click.option(
    "--report",
    "report_files",
    cls=Option,
    group=OUTPUT,
    type=TARGET,
    multiple=True,
    metavar="FILE",
    help="Write the full report to FILE, in the form of its suffix, or to mlflow:EXPERIMENT or wandb:PROJECT. May be "
    "given several times.",
)


def remaining(seconds: float, done: int, left: int) -> str:
    """Return ", about 2:05 left" if `done` took `seconds`; empty at the beginning and at the end."""
    if not done or not left or seconds < _MEANINGFUL:
        return ""
    return f", about {clock(round(seconds / done * left))} left"


def clock(seconds: float) -> str:
    """Return whole seconds as "2:05"."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}"


class PlainLines:
    """Prints a line when a step starts, for logs; with `timings` another when it ends."""

    def __init__(self, *, timings: bool) -> None:
        self._timings = timings
        self._said: set[str] = set()

    def started(self, step: str) -> None:
        self._said.add(step)
        show_on_stderr(f"{step} ...")

    def progressed(self, step: str, done: int, total: int) -> None:
        if step in self._said:  # no line per sample in a log
            return
        self._said.add(step)
        show_on_stderr(f"{step} {done} of {total} ...")

    def finished(self, step: str, seconds: float) -> None:
        if self._timings:
            show_on_stderr(f"{step} took {seconds:.2f} s")


class Spinner:
    """Shows the current step and its time on one line, which disappears."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        # Steps may name files and nodes, in which [/x] is no markup.
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        self._begun: tuple[float, int] | None = None
        self._display = Progress(*columns, console=Console(stderr=True), transient=True)

    def started(self, step: str) -> None:
        self._begun = None
        self._task = self._display.add_task(step, total=None)
        self._display.start()

    def progressed(self, step: str, done: int, total: int) -> None:
        now = time.monotonic()
        self._begun = self._begun or (now, done)
        left = remaining(now - self._begun[0], done - self._begun[1], total - done)
        with suppress(KeyError):  # another thread ended the step meanwhile
            self._display.update(self._task, description=f"{step} {done} of {total}{left}")

    def finished(self, step: str, seconds: float) -> None:
        self._display.remove_task(self._task)
        self._display.stop()
