"""A baseline: the JSON that an earlier `onnxport bench` left, read back, and held to be of this machine.

What a file may be instead is told apart, since each has another way out: nothing, no JSON, another command's report,
the tale of a failure, another version's form, a report cut short.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from onnxport.bench.report import SCHEMA_VERSION, BenchReport, Machine
from onnxport.core.errors import InputError, UsageError, printable

_MAKE = "make one with: onnxport bench MODEL --report baseline.json"
_LARGEST = 64 * 2**20  # bytes; a row has about two thousand

# What makes two machines one for a clock, and how a message says it.
_SAME: dict[str, str] = {
    "processor": "the processor",
    "instruction_sets": "the instruction sets",
    "cores": "the number of cores",
}


def read(path: Path) -> BenchReport:
    """The report in the file at `path`.

    Raises:
        InputError: there is none that this version reads.
    """
    document = _document(path, _bytes(path))
    if "error" in document and "rows" not in document:
        raise _no_baseline(path, f"it tells of a run that failed with exit {document.get('exit_code')}")
    if "rows" not in document or "machine" not in document:
        raise _no_baseline(path, f"it is {_other(document)}")
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise InputError(
            f"{path} has form {printable(version)} of a bench's report",
            why=f"this onnxport reads form {SCHEMA_VERSION}",
            fix="make the baseline again with this one",
        )
    try:
        return BenchReport.model_validate_json(json.dumps(document))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "its top"
        raise InputError(
            f"{path} is a damaged baseline", why=printable(f"{place}: {first['msg']}"), fix=_MAKE
        ) from None


def check_machine(path: Path, then: Machine, now: Machine) -> None:
    """Refuses a baseline of another machine (UsageError): its times say nothing of this one."""
    if differing := "; ".join(differences(then, now)):
        raise UsageError(
            f"{path} was measured on another machine",
            why=differing,
            fix="measure a baseline here, say --against OLD_MODEL, or compare all the same with --force",
        )


def differences(then: Machine, now: Machine) -> Iterator[str]:
    """What of two machines differs, each in a clause."""
    for name, said in _SAME.items():
        before, after = getattr(then, name), getattr(now, name)
        if before != after:
            yield printable(f"{said}: {before} then, {after} now")
    if _kind(then.system) != _kind(now.system):
        yield printable(f"the system: {then.system} then, {now.system} now")


def renewed(then: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Which libraries are of another version than they were: a change of speed may be theirs."""
    for name in sorted({*then} & {*now}):
        if then[name] != now[name]:
            yield printable(
                f"{name} was {then[name]} in the baseline and is {now[name]}: a change may be its own"
            )


def _kind(system: str) -> str:
    """Of "Linux-6.1.0-x86_64-with-glibc2.36" the first word: another patch of a kernel is no other machine."""
    return system.partition("-")[0]


def _bytes(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder", fix="give the JSON file of an earlier bench")
        if path.stat().st_size > _LARGEST:
            raise _no_baseline(path, "it is far larger than any")
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path} does not exist", fix=_MAKE) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read", why=error.strerror or str(error)) from error


def _document(path: Path, data: bytes) -> dict[str, Any]:
    if not data.strip():
        raise _no_baseline(path, "it is empty")
    try:
        # Told by its first bytes: a PowerShell that redirects writes UTF-16.
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _no_baseline(path, f"it is no JSON: {printable(error)}") from None
    if not isinstance(document, dict):
        raise _no_baseline(path, "it is JSON of something else")
    return document


def _other(document: dict[str, Any]) -> str:
    command = document.get("command")
    words = command if isinstance(command, str) else " ".join(map(str, command)) if command else ""
    return f"the report of another command: {printable(words)[:80]}" if words else "JSON of something else"


def _no_baseline(path: Path, why: str) -> InputError:
    return InputError(f"{os.fspath(path)} is no report of onnxport bench", why=why, fix=_MAKE)
