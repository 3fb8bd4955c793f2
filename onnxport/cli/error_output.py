"""Every way in which a command fails: one clear sentence, the exit code last, a traceback only on request."""

from __future__ import annotations

import json
import os
import sys
import traceback
from dataclasses import dataclass
from typing import Any, TextIO

import click

from onnxport.cli import signals
from onnxport.cli.workflow_commands import inert, inert_document
from onnxport.core.errors import (
    INTERRUPTED,
    USAGE,
    BadPipelineError,
    CannotConvertError,
    NotProvenError,
    OnnxportError,
    printable,
)
from onnxport.pipelines.failures import Failure, failure_of


@dataclass(frozen=True)
class Style:
    """How a failure is to be shown."""

    json: bool
    verbose: bool


def show(error: BaseException, style: Style) -> int:
    """Shows `error` on stderr, with --json also as the document on stdout; returns the exit code."""
    if isinstance(error, BrokenPipeError):  # who read the help text has gone; there is nobody to tell
        _silence(sys.stdout)
        return INTERRUPTED
    signals.mark_answered()
    failure = explain(error)
    if style.verbose and not isinstance(error, click.ClickException):
        show_traceback(error)
    if style.json and not isinstance(error, NotProvenError):  # its document is the report, printed before
        try:
            show_on_stdout(inert_document(json.dumps(_document(error, failure), indent=2)))
        except OSError:  # a full disk, which may be what is to be told
            _silence(sys.stdout)
    # Ours are the line breaks; names out of files may hold what moves a terminal's cursor.
    message = "\n".join(printable(line) for line in failure.message.split("\n"))
    show_on_stderr(f"error: {message}")
    show_on_stderr(f"exit {failure.exit_code}")
    return failure.exit_code


def show_traceback(error: BaseException) -> None:
    """Shows on stderr where `error` comes from, and what a child process of it said last."""
    show_on_stderr("".join(traceback.format_exception(error)).rstrip())
    if output := getattr(error, "output", ""):
        show_on_stderr(output)


def explain(error: BaseException) -> Failure:
    """The sentence and the exit code for `error`."""
    if isinstance(error, click.ClickException):
        return Failure("UsageError", _usage(error), USAGE)
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return Failure("Interrupted", "interrupted", INTERRUPTED)
    return failure_of(error)


def show_on_stdout(text: str) -> None:
    """Prints a line on stdout; a reader that has gone away changes nothing about the run."""
    try:
        click.echo(inert(text))
    except BrokenPipeError:
        _silence(sys.stdout)


def show_on_stderr(text: str) -> None:
    """The same on stderr."""
    _show_on_stderr(inert(text))


def show_command(text: str) -> None:
    """A line on stderr that a CI service is to take for a command of its own, control characters and all."""
    _show_on_stderr(text, color=True)


def _show_on_stderr(text: str, color: bool | None = None) -> None:
    try:
        click.echo(text, err=True, color=color)
    except BrokenPipeError:
        _silence(sys.stderr)


def _silence(stream: TextIO) -> None:
    """Points `stream` at nothing, so that the interpreter's last flush does not fail as well."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _usage(error: click.ClickException) -> str:
    message = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    return f"{message}; see {context.command_path} --help" if context else message


def _document(error: BaseException, failure: Failure) -> dict[str, Any]:
    content: dict[str, Any] = {"kind": failure.kind, "message": failure.message}
    if isinstance(error, OnnxportError):
        content |= {"what": error.what, "why": error.why, "fix": error.fix}
    if isinstance(error, CannotConvertError):
        content["refusals"] = [vars(refusal) for refusal in error.refusals]
    if isinstance(error, BadPipelineError):
        content["faults"] = [vars(failure_of(fault)) for fault in error.faults]
    return {"error": content, "exit_code": failure.exit_code}
