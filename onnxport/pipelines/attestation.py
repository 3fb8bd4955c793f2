"""The attestation of an artefact: an in-toto statement beside it, for whoever gets both, and its check.

The form is Statement v1 (https://in-toto.io/Statement/v1) with SLSA's provenance v1 (https://slsa.dev/provenance/v1):
the subjects are the artefact's files, the dependencies the source and the libraries, and the by-product the verdict.
It has no time, so that the same run gives the same bytes, and no signature: tools such as cosign sign files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxport.core.errors import InputError
from onnxport.core.missing_paths import unreadable_path
from onnxport.core.regular_file import read_regular
from onnxport.core.urls import shown
from onnxport.formats.artifact import Artifact, Staging
from onnxport.formats.manifest import DEEPEST, count_levels
from onnxport.reports.run_report import ArtifactRecord, RunReport
from onnxport.reports.verification import Check

SUFFIX = ".intoto.json"
_STATEMENT, _PREDICATE = "https://in-toto.io/Statement/v1", "https://slsa.dev/provenance/v1"
_MODEL = "onnxportModel"  # names a digest of Artifact.digest, over all files of a model
_LARGEST = 2**22  # bytes; those of 20 000 files of a package
_DEEPEST = DEEPEST + 8  # levels: those of a manifest's options, and what is around them


def attest(report: RunReport) -> tuple[Path, ...]:
    """Write the statement of each artefact that a run delivered, beside it; return their paths.

    Raises:
        MachineError: it cannot be written.
    """
    delivered = [record for record in report.artifacts if record.path is not None and record.report.passed]
    return tuple(_write(report, record) for record in delivered if not record.function)


def _write(report: RunReport, record: ArtifactRecord) -> Path:
    assert record.path is not None
    path = Path(record.path + SUFFIX)
    with Staging(path, "--attest") as staging:
        staged = staging.folder / path.name
        staged.write_text(shown(_text(_statement(report, record))), encoding="utf-8")
        staging.commit({staged: path})
    return path


@dataclass(frozen=True)
class Attestation:
    """A statement as read.

    Attributes:
        files: name of each file of the artefact -> its SHA-256.
        note: what it says that the artefact says of itself: source, options, made_by, validation.
        is_whole: whether its checksum holds.
    """

    path: Path
    files: Mapping[str, str]
    note: Mapping[str, Any]
    verdict: str
    is_whole: bool

    @classmethod
    def read(cls, path: Path) -> Attestation:
        """Raise InputError where it cannot be read, or is no statement of onnxport's."""
        statement = _read(path)
        try:
            definition, run = (statement["predicate"][name] for name in ("buildDefinition", "runDetails"))
            proof = run["byproducts"][0]["annotations"]
            inner = definition["internalParameters"]
            note = {
                "source": str(definition["resolvedDependencies"][0]["digest"][_MODEL]),
                "options": {name: dict(options) for name, options in inner["options"].items()},
                "made_by": {name: str(version) for name, version in inner["made_by"].items()},
                "validation": proof["validation"],
            }
            files = {str(each["name"]): str(each["digest"]["sha256"]) for each in statement["subject"]}
            seal, verdict = run["metadata"].pop("invocationId"), str(proof["verdict"])
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise _no_statement(path) from error
        return cls(path, files, note, verdict, seal == _seal(statement))

    def check_files(self, artifact: Artifact) -> Check:
        """Compare the artefact's files; a lone main file may have another name by now, a folder has no others."""
        root = artifact.path if artifact.is_folder else artifact.path.parent
        main = None if artifact.is_folder else next(iter(self.files), None)
        wrong = [] if self.files else ["it names no files"]
        for name, digest in self.files.items():
            file = artifact.path if name == main else root / name
            if not file.is_file():
                wrong.append(f"{name} is missing")
            elif _sha256(file) != digest:
                wrong.append(f"{name} has changed")
        if artifact.is_folder:
            wrong += [f"{name} is none of its files" for name in artifact.names if name not in self.files]
        said = ", ".join(wrong) or "those of the attestation"
        return Check(subject="bytes", status="fails" if wrong else "holds", said=said)

    def check_note(self, note: Mapping[str, Any]) -> Check:
        """Compare the statement with its checksum, and with the note in the artefact."""
        if not self.is_whole:
            return self._fails("was changed after it was written")
        if any(note[name] != said for name, said in self.note.items()):
            return self._fails("says other things than the artefact says of itself")
        return Check(subject="attestation", status="holds", said=f"{self.path}, which has no signature")

    def _fails(self, said: str) -> Check:
        return Check(subject="attestation", status="fails", said=f"{self.path} {said}")


def _statement(report: RunReport, record: ArtifactRecord) -> dict[str, Any]:
    from onnxport.inspection import inspect_model

    assert record.path is not None
    path = Path(record.path)
    artifact = Artifact(
        path, Artifact.open(path).format, tuple(Path(each.path) for each in record.companions)
    )
    note = inspect_model(path).manifest or {}
    proof = {
        "verdict": record.report.verdict,
        "reason": record.report.reason,
        "validation": note["validation"],
    }
    versions = [
        {"name": name, "annotations": {"version": version}}
        for name, version in sorted(report.environment.items())
    ]
    statement: dict[str, Any] = {
        "_type": _STATEMENT,
        "subject": [
            {"name": name, "digest": {"sha256": _sha256(file)}}
            for name, file in zip(artifact.names, artifact.files, strict=True)
        ],
        "predicateType": _PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": f"urn:onnxport:{report.command}:1",
                "externalParameters": {"command": report.command, "arguments": list(report.arguments)},
                "internalParameters": {"options": note["options"], "made_by": note["made_by"]},
                "resolvedDependencies": [
                    {"name": Path(report.source.path).name, "digest": {_MODEL: note["source"]}},
                    *versions,
                ],
            },
            "runDetails": {
                "builder": {"id": "urn:onnxport", "version": {"onnxport": report.environment["onnxport"]}},
                "metadata": {},
                "byproducts": [{"name": "proof", "annotations": proof}],
            },
        },
    }
    statement["predicate"]["runDetails"]["metadata"]["invocationId"] = _seal(statement)
    return statement


def _text(statement: Mapping[str, Any]) -> str:
    return "".join(_pieces(statement))


def _pieces(statement: Mapping[str, Any]) -> Iterator[str]:
    """Yield a statement's text in pieces: indented, it may be many times as large as the file of a stranger."""
    yield from json.JSONEncoder(indent=2, sort_keys=True).iterencode(statement)
    yield "\n"


def _seal(statement: Mapping[str, Any]) -> str:
    """Return a checksum of a statement without its invocationId: it shows edits, but anyone can compute it."""
    digest = hashlib.sha256()
    for piece in _pieces(statement):
        digest.update(piece.encode())
    return "sha256:" + digest.hexdigest()


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_regular(path, _LARGEST))
    except OSError as error:
        raise unreadable_path(path, error) from error
    except (ValueError, RecursionError) as error:
        raise _no_statement(path) from error
    if not isinstance(found, dict) or (found.get("_type"), found.get("predicateType")) != (
        _STATEMENT,
        _PREDICATE,
    ):
        raise _no_statement(path)
    if count_levels(found) > _DEEPEST:  # indented, its text would have the square of their number
        raise _no_statement(path)
    return found


def _no_statement(path: Path) -> InputError:
    return InputError(
        f"{path} is not an attestation of onnxport",
        fix="give the .intoto.json that --attest wrote beside the artefact",
    )
