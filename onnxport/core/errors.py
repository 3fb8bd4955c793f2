"""Every error that a user can meet: what happened, why, and the fix.

The exit codes are a contract (docs/reference/exit-codes.md). Of several failures in one run, the first
in SEVERITY decides the exit code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from onnxport.core.urls import shown

PROVEN = 0
NOT_EQUIVALENT = 1
USAGE = 2
CANNOT_CONVERT = 3
BAD_INPUT = 4
MISSING_DEPENDENCY = 5
MACHINE_FAILED = 6
BUG = 70
INTERRUPTED = 130

SEVERITY = (BUG, MACHINE_FAILED, MISSING_DEPENDENCY, BAD_INPUT, CANNOT_CONVERT, USAGE, NOT_EQUIVALENT, PROVEN)


# A file name has at most 255 characters, and a list of names some thousands.
_LONGEST_WORD, _LONGEST_LINE = 255, 10_000
_LONG = re.compile(rf"\S{{{_LONGEST_WORD + 1},}}")


class OnnxportError(Exception):
    """Base of every error that is no bug of ours.

    Args:
        what: one clause that names the failure and its object, in the user's names.
        why: the cause, unless `what` says it.
        fix: the remedy, as a command or an option where there is one.
    """

    exit_code = BUG

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what, why, fix)
        self.what, self.why, self.fix = what, why, fix

    def __str__(self) -> str:
        sentence = f"{self.what}: {self.why}" if self.why else self.what
        return shown(f"{sentence}; {self.fix}" if self.fix else sentence)

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders (core/child_process.py): keyword arguments have to survive pickling.
        return _rebuild, (type(self), self.what, self.why, self.fix, self.__dict__)


def _rebuild(
    kind: type[OnnxportError], what: str, why: str, fix: str, state: dict[str, object]
) -> OnnxportError:
    error = kind.__new__(kind)
    OnnxportError.__init__(error, what, why=why, fix=fix)
    error.__dict__.update(state)
    return error


class UsageError(OnnxportError):
    """An option that does not fit the model or another option."""

    exit_code = USAGE


class NoSizesError(UsageError):
    """The model ran at none of the sizes that were tried for its open dimensions."""


class InputError(OnnxportError):
    """A file that is missing, unreadable, unsafe or not what its name says."""

    exit_code = BAD_INPUT


class MissingDependencyError(OnnxportError):
    """A library or platform that the task needs is missing; `fix` is the command that installs it."""

    exit_code = MISSING_DEPENDENCY


class MachineError(OnnxportError):
    """The machine failed: disk, memory, permission to write, a compiler that crashed or hung."""

    exit_code = MACHINE_FAILED


class NotProvenError(OnnxportError):
    """An artefact differs from its source, or the inputs prove nothing about it; `report` has the figures."""

    exit_code = NOT_EQUIVALENT

    def __init__(self, what: str, *, why: str = "", fix: str = "", report: Any = None) -> None:
        super().__init__(what, why=why, fix=fix)
        self.report = report


class PipelineFailedError(OnnxportError):
    """A part of a pipeline failed, is unproven, or exceeds a limit; `report` has the details, `exit_code` the worst."""

    def __init__(
        self, what: str, *, exit_code: int, why: str = "", fix: str = "", report: Any = None
    ) -> None:
        super().__init__(what, why=why, fix=fix)
        self.exit_code, self.report = exit_code, report


def printable(value: object) -> str:
    """Return `value` on one line, with unprintable characters as escapes (`\\x1b`): no name forges our lines."""

    def escape(character: str) -> str:
        return " " if character.isspace() else character.encode("unicode_escape").decode("ascii")

    text = str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else escape(c) for c in text)


def readable(value: object) -> str:
    """Return `value` as `printable` does, without the middle of words that nobody reads: a name may have 100 kB."""
    text = printable(value)
    if len(text) <= _LONGEST_WORD:
        return text
    return cut_middle(_LONG.sub(lambda found: cut_middle(found[0], _LONGEST_WORD), text), _LONGEST_LINE)


def cut_middle(text: str, most: int) -> str:
    """Return a text of at most `most` characters: its begin and its end."""
    half = most // 2
    return text if len(text) <= most else f"{text[: half - 1]}…{text[-half:]}"


def printable_json(document: str) -> str:
    """Return a JSON document with unprintable characters as escapes of JSON: they occur in its strings only."""

    def escape(line: str) -> str:
        return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in line)

    return "\n".join(line if line.isprintable() else escape(line) for line in document.split("\n"))


@dataclass(frozen=True)
class Refusal:
    """A node that a target does not support, named as Netron shows it."""

    op: str
    node: str
    why: str


class CannotConvertError(OnnxportError):
    """The model has no equivalent in the target format; lists every reason."""

    exit_code = CANNOT_CONVERT

    def __init__(self, what: str, *, refusals: Iterable[Refusal] = (), why: str = "", fix: str = "") -> None:
        super().__init__(what, why=why, fix=fix)
        self.refusals: Sequence[Refusal] = tuple(refusals)

    def __str__(self) -> str:
        if not self.refusals:
            return super().__str__()
        op_width = max(len(r.op) for r in self.refusals)
        node_width = max(len(r.node) for r in self.refusals) + 2
        rows = [printable(f"  {r.op:<{op_width}}  {r.node!r:<{node_width}}  {r.why}") for r in self.refusals]
        named = f"{self.what}: {self.why}" if self.why else self.what
        return shown("\n".join([f"{named}:", *rows, *([self.fix] if self.fix else [])]))


class BadPipelineError(OnnxportError):
    """A pipeline.yaml with several faults; `faults` has one error each."""

    def __init__(self, what: str, faults: Sequence[OnnxportError]) -> None:
        super().__init__(what)
        self.faults = tuple(faults)
        self.exit_code = worst(fault.exit_code for fault in faults)

    def __str__(self) -> str:
        return shown("\n".join([self.what, *(printable(f"  {fault}") for fault in self.faults)]))


def worst(exit_codes: Iterable[int]) -> int:
    """Return the exit code of a run whose parts ended with `exit_codes`."""
    codes = set(exit_codes)
    return next((code for code in SEVERITY if code in codes), PROVEN)
