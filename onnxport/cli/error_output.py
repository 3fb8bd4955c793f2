"""Shows the errors of commands: one sentence, then the exit code; a traceback only with --verbose."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Callable
from json import dumps
from typing import Any, TextIO

import click

from onnxport.cli import signals
from onnxport.core import urls
from onnxport.core.errors import (
    INTERRUPTED,
    USAGE,
    BadPipelineError,
    CannotConvertError,
    NotProvenError,
    OnnxportError,
    printable,
    printable_json,
    readable,
)
from onnxport.pipelines.failures import Failure, failure_of

# click's words for a value that is none of an option's choices.
_NO_CHOICE = re.compile(r"'([^']*)' is not one of (.+)")
_MOST_MEANT = 3  # options that a refusal names


def show(error: BaseException, *, json: bool, verbose: bool) -> int:
    """Show `error` on stderr, with `json` also as a document on stdout; return the exit code."""
    if isinstance(error, BrokenPipeError):  # the reader of the help text has gone
        _silence(sys.stdout)
        return INTERRUPTED
    signals.mark_answered()
    failure = explain(error)
    if verbose and not isinstance(error, click.ClickException):
        show_traceback(error)
    if json and not isinstance(error, NotProvenError):  # its document, the report, is printed already
        try:
            show_on_stdout(inert_document(dumps(_document(error, failure), indent=2)), is_document=True)
        except OSError:  # a full disk, perhaps the error itself
            _silence(sys.stdout)
    show_on_stderr(f"error: {failure.message}")
    show_on_stderr(f"exit {failure.exit_code}")
    return failure.exit_code


def show_traceback(error: BaseException) -> None:
    """Print the traceback of `error`, and the last output of its child process."""
    show_on_stderr("".join(traceback.format_exception(error)).rstrip())
    if output := getattr(error, "output", ""):
        show_on_stderr(output)


def explain(error: BaseException) -> Failure:
    """Return the message and the exit code for `error`."""
    if isinstance(error, click.ClickException):
        return Failure("UsageError", _usage(error), USAGE)
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return Failure("Interrupted", "interrupted", INTERRUPTED)
    return failure_of(error)


def show_on_stdout(text: str, *, is_document: bool = False) -> None:
    """Print lines on stdout, without control characters of a terminal; ignore a closed pipe.

    Args:
        is_document: whether a program reads them: they keep long names whole.
    """
    try:
        click.echo(inert(_lines(urls.shown(text), printable if is_document else readable)))
    except BrokenPipeError:
        _silence(sys.stdout)


def show_on_stderr(text: str, *, is_command: bool = False) -> None:
    """Print a line on stderr; ignore one that takes none. A command for the CI service keeps its control characters."""
    try:
        named = urls.shown(text)
        lines = named if is_command else inert(_lines(named, readable))
        click.echo(lines, err=True, color=is_command or None)
    except OSError:  # a full disk, too: the exit code must not become Python's 1, which says "not equivalent"
        _silence(sys.stderr)


def _lines(text: str, shown: Callable[[str], str]) -> str:
    """Return `text` with its line breaks alone: names from files may have control characters of a terminal."""
    return "\n".join(map(shown, text.split("\n")))


def _silence(stream: TextIO) -> None:
    """Redirect `stream` to os.devnull, so the interpreter's last flush does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _usage(error: click.ClickException) -> str:
    message = " ".join(error.format_message().split()).rstrip(".")
    if isinstance(error, click.NoSuchOption) and (meant := _meant(error)):
        message = f"No such option {error.option_name!r}; did you mean {' or '.join(map(repr, meant))}?"
    if near := _nearest_choice(message):
        message += f"; did you mean {near!r}?"
    context = getattr(error, "ctx", None)
    return f"{message}; see {context.command_path} --help" if context else message


def _meant(error: click.NoSuchOption) -> list[str]:
    """Return the options that hold all of a refused one, as --candidate-runtime holds --runtime; else the nearest."""
    known = error.ctx.command.params if error.ctx else []
    options = [option for each in known for option in each.opts if option.startswith("--")]
    words = error.option_name.lstrip("-").split("-")
    holding = [option for option in options if set(words) <= set(option.lstrip("-").split("-"))]
    return holding[:_MOST_MEANT] or (error.possibilities or [])[:1]  # the nearest first; click lists by name


def _nearest_choice(message: str) -> str:
    """Return the choice that click's refusal lists and the user may have meant; empty if none is near."""
    found = _NO_CHOICE.search(message)
    if found is None:
        return ""
    import difflib

    return next(iter(difflib.get_close_matches(found[1], re.findall(r"'([^']+)'", found[2]), n=1)), "")


def _document(error: BaseException, failure: Failure) -> dict[str, Any]:
    content: dict[str, Any] = {"kind": failure.kind, "message": failure.message}
    if isinstance(error, OnnxportError):
        content |= {"what": error.what, "why": error.why, "fix": error.fix}
    if isinstance(error, CannotConvertError):
        content["refusals"] = [vars(refusal) for refusal in error.refusals]
    if isinstance(error, BadPipelineError):
        content["faults"] = [vars(failure_of(fault)) for fault in error.faults]
    return {"error": content, "exit_code": failure.exit_code}


def inert(text: str) -> str:
    """Escape commands of GitHub Actions in `text`, if this runs there: names in a model file could be one.

    A command begins a line with ::, or has ##[ anywhere (actions/runner, src/Runner.Common/ActionCommand.cs).
    """
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return text
    lines = text.replace("##[", "## [").split("\n")
    return "\n".join(f"> {line}" if line.lstrip().startswith("::") else line for line in lines)


def inert_document(document: str) -> str:
    """Escape commands, and control characters of a terminal, in a JSON document: both occur in its strings only."""
    return printable_json(document.replace("##[", "##\\u005b"))
