"""A baseline: the JSON of an earlier `onnxport bench`, or of results measured elsewhere, and the rows that match."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from onnxport.bench.comparison import Comparison, Conditions, compare, compare_rows
from onnxport.bench.report import SCHEMA_VERSION, BenchReport, Floor, Machine, Row, Settings, Standard
from onnxport.bench.results import KEY, ForeignReport, fits, foreign_report, machine_differences
from onnxport.core.errors import InputError, UsageError, printable
from onnxport.core.missing_paths import missing_path

_MAKE = "make one with: onnxport bench MODEL --report baseline.json"
_LARGEST = 64 * 2**20  # bytes; a row has about two thousand

# Properties of a machine that decide about speed, and their names in messages.
_DECISIVE: dict[str, str] = {
    "processor": "the processor",
    "instruction_sets": "the instruction sets",
    "cores": "the number of cores",
}


def read(path: Path) -> BenchReport:
    """Read the report at `path`. Raises InputError: the file has no report that this version reads."""
    document = _document(path, _bytes(path))
    if KEY in document:
        with _refuse_unreadable(path):
            return foreign_report(document)
    if "error" in document and "rows" not in document:
        raise _no_baseline(path, f"it is from a run that failed with exit {document.get('exit_code')}")
    if "rows" not in document or "machine" not in document:
        command = document.get("command")
        words = command if isinstance(command, str) else " ".join(map(str, command)) if command else ""
        other = f"the report of another command: {printable(words)[:80]}" if words else "other JSON"
        if "rows" in document:
            other = f'other JSON with rows; results measured elsewhere need "{KEY}": 1'
        raise _no_baseline(path, f"it is {other}")
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise InputError(
            f"{path} has version {printable(version)} of the bench schema",
            why=f"this onnxport reads version {SCHEMA_VERSION}",
            fix="make the baseline again with this onnxport",
        )
    with _refuse_unreadable(path):
        return BenchReport.model_validate_json(json.dumps(document))


@contextmanager
def _refuse_unreadable(path: Path) -> Iterator[None]:
    """Turn what pydantic finds wrong with a document into an InputError."""
    try:
        yield
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "its top"
        raise InputError(
            f"{path} is a damaged baseline", why=printable(f"{place}: {first['msg']}"), fix=_MAKE
        ) from None


def check_machine(path: Path, report: BenchReport, now: Machine) -> None:
    """Refuse a baseline of another machine (UsageError): its times say nothing about this one."""
    if differing := "; ".join(differences(report, now)):
        raise UsageError(
            f"{path} was measured on another machine",
            why=differing,
            fix="measure a baseline here, give --against OLD_MODEL, or compare anyway with --force",
        )


def differences(report: BenchReport, now: Machine) -> Iterator[str]:
    """Yield how the machine of a baseline differs from the one that is measured on, each in a clause."""
    then = report.machine
    if isinstance(report, ForeignReport):
        yield from machine_differences(then, now)
        return
    for name, said in _DECISIVE.items():
        before, after = getattr(then, name), getattr(now, name)
        if before != after:
            yield printable(f"{said}: {before} before, {after} now")
    # The first word of "Linux-6.1.0-x86_64-with-glibc2.36": another kernel is still the same machine.
    if then.system.partition("-")[0] != now.system.partition("-")[0]:
        yield printable(f"the system: {then.system} before, {now.system} now")


def version_changes(then: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each library with another version, which may change the speed."""
    for name in sorted({*then} & {*now}):
        if then[name] != now[name]:
            yield printable(
                f"{name} was {then[name]} in the baseline and is {now[name]} now, which may change the speed"
            )


def note_unknown_machine(path: Path, report: BenchReport) -> Iterator[str]:
    """Yield a sentence where results do not say what they were measured on."""
    if isinstance(report, ForeignReport) and not report.machine.processor:
        yield f"{path} does not say on which machine it was measured"


def _bytes(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder", fix="give the JSON file of an earlier bench")
        if path.stat().st_size > _LARGEST:
            raise _no_baseline(path, "it is too large")
        return path.read_bytes()
    except FileNotFoundError:
        raise missing_path(path, fix=_MAKE) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read", why=error.strerror or str(error)) from error


def _document(path: Path, data: bytes) -> dict[str, Any]:
    if not data.strip():
        raise _no_baseline(path, "it is empty")
    try:
        # json detects the encoding: PowerShell redirects in UTF-16.
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _no_baseline(path, f"it is not JSON: {printable(error)}") from None
    if not isinstance(document, dict):
        raise _no_baseline(path, "it is other JSON")
    return document


def _no_baseline(path: Path, why: str) -> InputError:
    return InputError(f"{os.fspath(path)} is not a report of onnxport bench", why=why, fix=_MAKE)


class Baseline:
    """An earlier report and its limit.

    A row's counterpart has the same settings and the same path, or the same file name where only one has it.
    """

    def __init__(self, report: BenchReport, path: Path, limit: float) -> None:
        self.report, self.path, self.limit = report, path, limit
        self.was = Conditions(report.pace_ms, report.others)
        self._by_path = {(os.path.normpath(row.artifact), row.settings): row for row in report.rows}
        named = Counter((_name(row.artifact), row.settings) for row in report.rows)
        self._by_name = {
            (_name(row.artifact), row.settings): row
            for row in report.rows
            if named[_name(row.artifact), row.settings] == 1
        }

    def counterpart(self, artifact: str, settings: Settings) -> Row | None:
        """Return the baseline's row for an artefact under these settings."""
        found = self._find(artifact, settings)
        if found is None and settings.batch is None:  # unknown before the model is loaded
            found = self._find(artifact, settings.model_copy(update={"batch": 1}))
        return found

    def _find(self, artifact: str, settings: Settings) -> Row | None:
        if isinstance(self.report, ForeignReport):
            fitting = [
                row
                for row in self.report.rows
                if _name(row.artifact) == _name(artifact) and fits(row.settings, settings)
            ]
            return fitting[0] if len(fitting) == 1 else None
        by_path = self._by_path.get((os.path.normpath(artifact), settings))
        return by_path or self._by_name.get((_name(artifact), settings))

    def compare(self, artifact: str, settings: Settings, floor: Floor, at: Conditions) -> Comparison | None:
        """Compare a floor with its counterpart's; None where the baseline has none."""
        then = self.counterpart(artifact, settings)
        if then is None or then.floor is None:
            return None
        return compare(floor, then.floor, at, self.was, threads=settings.threads)

    def standard(self, row: Row, at: Conditions) -> Standard | None:
        """Return the result of a measured row; None for others, which have their own reason."""
        if row.latency is None:
            return None
        then = self.counterpart(row.artifact, row.settings)
        found = None if then is None else compare_rows(row, then, at, self.was)
        if found is not None:
            return found.standard(self.limit)
        said = "the baseline has no such row" if then is None else f"in the baseline it was {then.status}"
        return Standard(standing="new", limit=self.limit, said=said)

    def check(self, rows: Sequence[tuple[str, Settings]]) -> None:
        """Refuse a baseline without any of these rows (UsageError): comparing nothing would pass everything."""
        if rows and not any(self.counterpart(*each) for each in rows):
            known = sorted({row.artifact for row in self.report.rows})
            raise UsageError(
                f"{self.path} has no row that this run measures",
                why=printable(f"it has {', '.join(known[:4]) or 'no rows'}, with their settings"),
                fix="name the same artefacts with the same settings, or measure a new baseline",
            )

    def missing(self, rows: Sequence[Row]) -> Iterator[str]:
        """Yield a sentence for each measured row of the baseline that `rows` lack."""
        matched = {id(self.counterpart(row.artifact, row.settings)) for row in rows}
        for row in self.report.rows:
            if row.latency is not None and id(row) not in matched:
                given = ", ".join(
                    f"{name} {value}" for name, value in row.settings if value not in (None, "")
                )
                which = f"{row.artifact} with {given}" if given else row.artifact
                yield printable(f"{which} is in the baseline, but was not measured so now")


def _name(artifact: str) -> str:
    return os.path.basename(os.path.normpath(artifact))
