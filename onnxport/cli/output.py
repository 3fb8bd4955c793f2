"""What a command says, and the options that govern it: results on stdout, progress and notes on stderr.

Without pydantic, so that `onnxport doctor` can say that it is missing.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onnxport.cli import signals
from onnxport.cli.error_output import show_on_stderr, show_on_stdout
from onnxport.cli.workflow_commands import inert_document
from onnxport.core.errors import printable

if TYPE_CHECKING:
    from onnxport.pipelines.step_times import Progress
    from onnxport.reports.run_report import RunReport


_TELLING = 1.0  # seconds after which the pace so far says something of the rest


class GivenPath(click.Path):
    """A path as given: what is wrong with it is said by whoever opens it, with the exit code that fits."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":  # pathlib takes it for the current folder
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)


# Where a context keeps the words of the whole command line.
ARGUMENTS = "onnxport.arguments"
PATH = GivenPath(path_type=Path, readable=False)


@dataclass(frozen=True)
class Output:
    """The user's wishes about how a command speaks, and the words behind its name that said so."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False
    arguments: tuple[str, ...] = ()

    def result(self, document: Callable[[], str], text: Callable[[], str]) -> None:
        """Prints the result on stdout, as its JSON document or as text."""
        signals.mark_answered()
        if self.json:
            show_on_stdout(inert_document(document()))
        elif not self.quiet:
            show_on_stdout(text())

    def run(self, report: RunReport, more: Callable[[], str] | None = None) -> None:
        """Says how a run ended: the document, or a line per artefact with its notes.

        Behind the line stands `more`, or the figures of every output, where a proof failed or the user wants to read
        more.
        """
        from onnxport.reports.terminal import notes, result_lines

        detailed = self.verbose or (more is None and not report.passed)

        def text() -> str:
            return "\n".join(
                [result_lines(report, detailed=detailed), *([more()] if more is not None else [])]
            )

        self.result(lambda: report.model_dump_json(indent=2), text)
        if not self.quiet and not self.json:
            for note in notes(report):
                show_on_stderr(printable(note))

    def progress(self) -> Progress | None:
        """The display that suits this terminal, None for silence."""
        if self.quiet:
            return None
        if sys.stderr.isatty() and not self.verbose and os.environ.get("TERM") != "dumb":
            return Spinner()
        return PlainLines(timings=self.verbose)


def output_options(function: Callable[..., int]) -> Callable[..., int]:
    """Adds --json, --quiet and --verbose, and hands them to `function` as one Output."""

    @click.option("--json", "json", is_flag=True, help="Print one JSON document on stdout and nothing else.")
    @click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
    @click.option("-v", "--verbose", is_flag=True, help="Say more: timings, and tracebacks of errors.")
    @functools.wraps(function)
    def wrapped(*args: Any, json: bool, quiet: bool, verbose: bool, **kwargs: Any) -> int:
        if quiet and verbose:
            raise click.UsageError("--quiet and --verbose exclude each other", click.get_current_context())
        with _library_logs(verbose):
            output = Output(json=json, quiet=quiet, verbose=verbose, arguments=_arguments())
            return function(*args, output=output, **kwargs)

    return wrapped


def _arguments() -> tuple[str, ...]:
    """What stood behind the command's name."""
    context = click.get_current_context()
    words: tuple[str, ...] = context.find_root().meta[ARGUMENTS]
    # A path that is no UTF-8 has a place in no report.
    return tuple(
        word.encode(errors="backslashreplace").decode()
        for word in words[words.index(context.info_name) + 1 :]
    )


@contextmanager
def _library_logs(allowed: bool) -> Iterator[None]:
    """Unless `allowed`, drops what libraries log for want of a handler: it would stand between our own lines."""
    import logging

    kept = logging.lastResort
    logging.lastResort = kept if allowed else None
    # Without a last resort, logging says once on stderr that there is no handler.
    raised, logging.raiseExceptions = logging.raiseExceptions, allowed
    try:
        yield
    finally:
        logging.lastResort, logging.raiseExceptions = kept, raised


report_option = click.option(
    "--report",
    "report_files",
    type=PATH,
    multiple=True,
    metavar="FILE",
    help="Write the whole report to FILE; its suffix says in which form. Once per form.",
)


def remaining(seconds: float, done: int, left: int) -> str:
    """ ", about 2:05 left" where `done` took `seconds`; empty while that tells nothing, and at the end."""
    if not done or not left or seconds < _TELLING:
        return ""
    minutes, rest = divmod(round(seconds / done * left), 60)
    return f", about {minutes}:{rest:02} left"


class PlainLines:
    """A line as a step starts, for logs; with `timings` another as it ends."""

    def __init__(self, *, timings: bool) -> None:
        self._timings = timings
        self._said: set[str] = set()

    def started(self, step: str) -> None:
        self._said.add(step)
        show_on_stderr(f"{step} ...")

    def progressed(self, step: str, done: int, total: int) -> None:
        if step in self._said:  # a log wants no line per sample
            return
        self._said.add(step)
        show_on_stderr(f"{step} {done} of {total} ...")

    def finished(self, step: str, seconds: float) -> None:
        if self._timings:
            show_on_stderr(f"{step} took {seconds:.2f} s")


class Spinner:
    """The current step and its elapsed time, on one line that vanishes."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
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
        with suppress(KeyError):  # a step that another thread has ended meanwhile
            self._display.update(self._task, description=f"{step} {done} of {total}{left}")

    def finished(self, step: str, seconds: float) -> None:
        self._display.remove_task(self._task)
        self._display.stop()
