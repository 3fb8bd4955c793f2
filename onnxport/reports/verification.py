"""The provenance of an artefact and its check, as data and as lines of text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from onnxport.core.errors import NOT_EQUIVALENT, PROVEN, NotProvenError, printable

Subject = Literal["bytes", "attestation", "proof", "source", "options", "files", "versions"]
# "later": something changed since then, so that the artefact would be made differently today; it is not wrong.
Status = Literal["holds", "fails", "later", "unknown"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Check(_Record):
    """One check and its result in words."""

    subject: Subject
    status: Status
    said: str


class StageRecord(_Record):
    """A stage that made the artefact, with the options that are not its defaults."""

    name: str
    stage: str
    options: dict[str, Any]


class Verification(_Record):
    """The provenance of an artefact and the checks of it.

    Attributes:
        source: SHA-256 of the model that it was made from.
        source_name: the model's name in the lock; empty without a lock.
        stages: from the model on.
        versions: of what made it.
        lock: the lock that was asked; None where there is none.
        attestation: the statement that was asked; None where none was given.
    """

    path: str
    format: str
    source: str
    source_name: str
    stages: tuple[StageRecord, ...]
    versions: dict[str, str]
    lock: str | None
    attestation: str | None = None
    checks: tuple[Check, ...]

    @property
    def exit_code(self) -> int:
        return NOT_EQUIVALENT if any(each.status == "fails" for each in self.checks) else PROVEN

    def check(self) -> None:
        """Raise NotProvenError where a check fails."""
        failing = [each for each in self.checks if each.status == "fails"]
        if failing:
            again = "--attest" if self.attestation else "onnxport run"
            raise NotProvenError(
                f"{self.path} fails verification",
                why="; ".join(f"{each.subject}: {each.said}" for each in failing),
                fix=f"make it again with {again}, or restore the files that changed",
                report=self,
            )


_STATUS = {"holds": "", "fails": "failed: ", "later": "", "unknown": "not checked: "}


def verification_lines(found: Verification, *, all_of_it: bool = False) -> str:
    """Return a subject per line; `all_of_it` adds the versions."""
    verdict = (
        "verified" if found.lock or found.attestation else "no contradiction found, but there is no lock"
    )
    lines = [f"{found.path}   {'fails verification' if found.exit_code else verdict}"]
    for name, text in _rows(found, all_of_it):
        lines.append(f"  {name:<12}{text}")
    return "\n".join(printable(line) for line in lines)


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
