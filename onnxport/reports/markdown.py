"""The parts of Markdown reports that all subjects share; GitHub and GitLab render them in the summary of a CI job."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from onnxport.core.errors import OnnxportError
from onnxport.reports import phrases


def escape(value: object) -> str:
    """Return `value` as plain text.

    CommonMark allows to escape any ASCII punctuation. These characters make Markdown, tables, bare links, emoji codes
    and formulas.
    """
    return re.sub(r"([\\`*_\[\]<>|~!#&$:@(){}^]|(?<=www)\.)", r"\\\1", phrases.text(value))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of cells that are already escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def note_lines(notes: Sequence[str]) -> list[str]:
    return [f"- note: {escape(note)}" for note in notes]


def command_block(command: str) -> str:
    """Return the command line as an indented block, which no backticks in an argument can end."""
    return f"To reproduce:\n\n    {phrases.text(command)}"


def ending(
    command: str, arguments: Sequence[str], environment: Mapping[str, str], seconds: float
) -> Iterator[str]:
    """Yield the command, then the time and the versions."""
    if arguments:
        yield command_block(phrases.command_line(command, arguments))
    versions = ", ".join(f"{name} {version}" for name, version in environment.items())
    yield f"{seconds:.1f} s" + (f" on {escape(versions)}" if versions else "")


def failure(error: OnnxportError, command: str) -> str:
    """Return the summary of a run that ended before there was a verdict."""
    lines = "\n".join(f"    {phrases.text(line)}" for line in str(error).splitlines())
    name = f"onnxport {command}".rstrip()
    return f"## ✗ {name} failed, exit {error.exit_code}\n\n{lines}\n"
