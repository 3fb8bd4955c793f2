"""What is known of an artefact's making: as data, and as lines of text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from onnxport.core.errors import NOT_EQUIVALENT, PROVEN, NotProvenError, printable

Subject = Literal["bytes", "proof", "source", "options", "files", "versions"]
# "later" is no fault of the artefact: it would be made with something else today.
Status = Literal["holds", "fails", "later", "unknown"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Check(_Record):
    """One thing that was asked, and the answer in words."""

    subject: Subject
    status: Status
    said: str


class StageRecord(_Record):
    """A stage that made the artefact, with the options that are not its defaults."""

    name: str
    stage: str
    options: dict[str, Any]


class Verification(_Record):
    """What is known of an artefact.

    Attributes:
        source: SHA-256 of the model that it was made from and is proven against.
        source_name: what the lock calls that; empty without one.
        stages: from the model on.
        versions: of what made it.
        lock: the lock that was asked; None where there is none.
    """

    path: str
    format: str
    source: str
    source_name: str
    stages: tuple[StageRecord, ...]
    versions: dict[str, str]
    lock: str | None
    checks: tuple[Check, ...]

    @property
    def exit_code(self) -> int:
        return NOT_EQUIVALENT if any(each.status == "fails" for each in self.checks) else PROVEN

    def check(self) -> None:
        """Raises NotProvenError where something does not hold."""
        failing = [each for each in self.checks if each.status == "fails"]
        if failing:
            raise NotProvenError(
                f"{self.path} does not hold",
                why="; ".join(f"{each.subject}: {each.said}" for each in failing),
                fix="make it again with onnxport run, or restore what has changed",
                report=self,
            )


_STATUS = {"holds": "", "fails": "does not hold: ", "later": "", "unknown": "not checked: "}


def verification_lines(found: Verification, *, all_of_it: bool = False) -> str:
    """A subject per line; `all_of_it` has the versions as well."""
    lines = [f"{found.path}   {_verdict(found)}"]
    for name, text in _rows(found, all_of_it):
        lines.append(f"  {name:<12}{text}")
    return "\n".join(printable(line) for line in lines)


def _verdict(found: Verification) -> str:
    if found.exit_code:
        return "does not hold"
    return "holds" if found.lock else "nothing speaks against it"


def _rows(found: Verification, all_of_it: bool) -> Iterator[tuple[str, str]]:
    yield "made from", f"{found.source_name or 'a model of'} SHA-256 {found.source}"
    for number, stage in enumerate(found.stages):
        options = (f"{name}={_shown(value)}" for name, value in stage.options.items())
        yield "" if number else "stages", " ".join([stage.stage, *options])
    if all_of_it:
        yield "made by", ", ".join(f"{name} {version}" for name, version in found.versions.items())
    yield "lock", found.lock or "none"
    for check in found.checks:
        yield check.subject, f"{_STATUS[check.status]}{check.said}"


def _shown(value: Any) -> str:
    if isinstance(value, dict) and "sha256" in value:
        return f"{value.get('folder') or value.get('file')} ({value['sha256'][:12]})"
    return value if isinstance(value, str) else json.dumps(value)
