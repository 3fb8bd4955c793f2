"""Verifies the provenance of an artefact: its source, stages and versions, and what changed since."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from onnxport.core.errors import InputError, OnnxportError, UsageError
from onnxport.core.version import __version__
from onnxport.exporters.sources import Source
from onnxport.formats.artifact import Artifact
from onnxport.pipelines.attestation import Attestation
from onnxport.pipelines.config.reader import read
from onnxport.pipelines.environment import LIBRARIES
from onnxport.pipelines.graph import digests
from onnxport.pipelines.graph.cache_keys import machine
from onnxport.pipelines.lock.differences import Comparison, Difference, is_content
from onnxport.pipelines.lock.entries import LockedArtefact, relative
from onnxport.pipelines.lock.file import MARK, SUFFIX, Lock
from onnxport.pipelines.registry import STAGES, TARGETS
from onnxport.pipelines.runner.provenance import number_names
from onnxport.reports.verification import Check, StageRecord, Subject, Verification
from onnxport.validate.report import RIGHT


def verify(
    path: Path, lock: Path | None = None, source: Path | None = None, attestation: Path | None = None
) -> Verification:
    """Return the provenance of an artefact, and whether it still holds.

    Args:
        lock: of its pipeline; searched in its folder and those above unless given.
        source: the model, if it is not where the lock says.
        attestation: what `--attest` wrote about the artefact; no lock is asked then.

    Raises:
        UsageError: the lock is missing or damaged.
        InputError: the artefact or the attestation is missing, unreadable, or not made by onnxport.
    """
    artifact = Artifact.open(path)
    if attestation is not None:
        return _by_attestation(artifact, attestation, source)
    known = Lock.read(lock) if lock is not None else _find_lock(artifact.path)
    if known is None and lock is not None:
        raise UsageError(f"there is no lock {lock}", fix="give the pipeline.lock that a run wrote")
    if known is None:
        return _by_note(artifact, source)
    place = _place_in(known, artifact)
    if place is not None:
        return _by_lock(artifact, known, place, source)
    note = _note(artifact)
    if lock is None and not any(_is_of(each, note) for each in known.artefacts.values()):
        return _by_note(artifact, source, f"{known.path} does not list it")
    said = f"{known.path} has no artefact with these bytes"
    checks = (Check(subject="bytes", status="fails", said=said),)
    return _by_note(artifact, source).model_copy(update={"lock": str(known.path), "checks": checks})


def _find_lock(artifact: Path) -> Lock | None:
    """Return the nearest lock that lists the artefact; if there is none, the nearest lock."""
    locks: list[Lock] = []
    for folder in artifact.absolute().parents:
        for file in sorted(folder.glob(f"*{SUFFIX}")):
            if _is_ours(file) and (lock := Lock.read(Path(os.path.relpath(file)))):
                if relative(artifact, folder) in lock.artefacts:
                    return lock
                locks.append(lock)
    return locks[0] if locks else None


def _is_ours(file: Path) -> bool:
    """Return whether a lock is ours; reads only its beginning."""
    try:
        with file.open("rb") as stream:
            return MARK.encode() in stream.read(4096)
    except OSError:
        return False


def _place_in(lock: Lock, artifact: Artifact) -> str | None:
    """Return the artefact's key in the lock, by its path or, if it was copied, by its bytes."""
    place = relative(artifact.path, lock.path.parent)
    if place in lock.artefacts:
        return place
    main = digests.digest_of(artifact) if artifact.is_folder else digests.sha256(artifact.path).hex()
    return next((each for each, locked in lock.artefacts.items() if _main(locked) == main), None)


def _main(locked: LockedArtefact) -> str:
    """Return the digest of a locked artefact's main file, or of a folder's files."""
    is_folder = any("/" in name for name in locked.made.files)
    return locked.made.digest if is_folder else next(iter(locked.made.files.values()))


def _is_of(locked: LockedArtefact, note: Mapping[str, Any]) -> bool:
    """Return whether a note is that of a locked artefact; its bytes must then match too."""
    stages = [stage for stage in locked.stages if stage.said["stage"] != "export"]
    names = number_names([stage.said["stage"] for stage in stages])
    versions = locked.stages[-1].versions
    return (
        note["source"] == locked.stages[-1].said["source"]
        and note["options"].keys() == set(names)
        and all(versions.get(name, version) == version for name, version in note["made_by"].items())
        and all(
            # A note has only options that name no files.
            _non_defaults(stage.said["stage"], note["options"][name])
            == {key: value for key, value in stage.said["options"].items() if not is_content(value)}
            for name, stage in zip(names, stages, strict=True)
        )
    )


def _non_defaults(stage: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the non-default options of a note, as a lock has them."""
    known = {**TARGETS, **STAGES}.get(stage)
    fields = {} if known is None else known.params.model_fields
    usual = {name: field.default for name, field in fields.items()}
    usual = to_jsonable_python(usual, fallback=lambda value: None)
    return {name: value for name, value in options.items() if name not in usual or value != usual[name]}


def _note(artifact: Artifact) -> Mapping[str, Any]:
    """Return the note in the artefact; InputError if it has none of ours, or cannot be read."""
    from onnxport.inspection import inspect_model

    note = inspect_model(artifact.path).manifest
    if note is None:
        raise InputError(
            f"{artifact.path} was not made by onnxport",
            why="it has no onnxport note",
            fix="give a file that onnxport made",
        )
    return note


def _by_note(artifact: Artifact, source: Path | None, why: str = "there is no lock") -> Verification:
    note = _note(artifact)
    checks = (
        Check(subject="bytes", status="unknown", said=f"{why}, so a change cannot be detected"),
        _proof("unproven" if note["validation"] == "skipped" else "proven"),
        _source(source, note["source"]),
        Check(subject="files", status="unknown", said=f"{why}; only a lock has the samples' digests"),
        _versions(note["made_by"]),
    )
    return _of_note(artifact, note).model_copy(update={"checks": checks})


def _source(given: Path | None, expected: str) -> Check:
    if given is not None:
        return _given_source(given, expected)
    return Check(subject="source", status="unknown", said="give it with --source")


def _of_note(artifact: Artifact, note: Mapping[str, Any]) -> Verification:
    """Return what a note says, without checks."""
    stages = [
        StageRecord(name=name, stage=stage, options=_non_defaults(stage, options))
        for name, options in sorted(note["options"].items(), key=lambda each: each[0] in TARGETS)
        for stage in [name.partition("#")[0]]
    ]
    return Verification(
        path=str(artifact.path),
        format=artifact.format,
        source=note["source"],
        source_name="",
        stages=tuple(stages),
        versions=note["made_by"],
        lock=None,
        checks=(),
    )


def _by_attestation(artifact: Artifact, attestation: Path, source: Path | None) -> Verification:
    read = Attestation.read(attestation)
    found = _of_note(artifact, read.note)
    checks = [read.check_files(artifact)]
    if checks[0].status == "holds":  # else what is in it may be unreadable
        checks.append(read.check_note(_note(artifact)))
    checks += [_proof(read.verdict), _source(source, read.note["source"]), _versions(read.note["made_by"])]
    return found.model_copy(update={"attestation": str(attestation), "checks": tuple(checks)})


def _by_lock(artifact: Artifact, lock: Lock, place: str, source: Path | None) -> Verification:
    locked = lock.artefacts[place]
    versions = {name: text for stage in locked.stages for name, text in stage.versions.items()}
    checks = [_bytes(artifact, locked), _proof(locked.verdict), *_inputs(lock, place, source)]
    return Verification(
        path=str(artifact.path),
        format=artifact.format,
        source=locked.stages[0].said["source"],
        source_name=locked.source,
        stages=tuple(
            StageRecord(name=stage.name, stage=stage.said["stage"], options=stage.said["options"])
            for stage in locked.stages
        ),
        versions=dict(sorted(versions.items())),
        lock=str(lock.path),
        checks=(*checks, _versions(versions)),
    )


def _bytes(artifact: Artifact, locked: LockedArtefact) -> Check:
    """Compare all files with the lock; a folder may have no others."""
    root = artifact.path if artifact.is_folder else artifact.path.parent
    main = None if artifact.is_folder else next(iter(locked.made.files))
    wrong = []
    for name, digest in locked.made.files.items():
        file = artifact.path if name == main else root / name
        if not file.is_file():
            wrong.append(f"{name} is missing")
        elif digests.sha256(file).hex() != digest:
            wrong.append(f"{name} has changed")
    if artifact.is_folder:
        wrong += [f"{name} is none of its files" for name in artifact.names if name not in locked.made.files]
    said = ", ".join(wrong) or f"those of the lock, {locked.made.digest[:12]}"
    return Check(subject="bytes", status="fails" if wrong else "holds", said=said)


def _proof(verdict: str) -> Check:
    return Check(subject="proof", status="holds" if verdict in RIGHT else "fails", said=verdict)


# What a difference of the pipeline is about, for the user.
_SUBJECTS: Mapping[str, Subject] = {
    "source": "source",
    "url": "source",
    "files": "files",
    "artefact": "options",
    "chain": "options",
    "option": "options",
}


def _inputs(lock: Lock, place: str, source: Path | None) -> Iterator[Check]:
    locked = lock.artefacts[place]
    asked: tuple[Subject, ...] = ("files", "options")
    if source is not None:
        yield _given_source(source, *(stage.said["source"] for stage in locked.stages))
    else:
        asked = ("source", *asked)
    try:
        found = tuple(_differences(lock, place))
    except OnnxportError as error:
        yield from (Check(subject=subject, status="unknown", said=str(error)) for subject in asked)
        return
    for subject in asked:
        said = [each.said for each in found if _SUBJECTS.get(each.kind) == subject]
        unchanged = f"{locked.source} is unchanged" if subject == "source" else "unchanged"
        yield Check(subject=subject, status="fails" if said else "holds", said="; ".join(said) or unchanged)


def _differences(lock: Lock, place: str) -> Iterator[Difference]:
    """Return the differences between the artefact's present and locked inputs; OnnxportError if a file is missing."""
    files = (lock.path.with_suffix(suffix) for suffix in (".yaml", ".yml"))
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        raise InputError(f"the pipeline of {lock.path} is not beside it")
    pipeline = read(file)
    comparison = Comparison(pipeline, lock)
    cells = [cell for cell in pipeline.cells if relative(cell.output, pipeline.folder) == place]
    if not cells:
        yield Difference("artefact", f"{file} makes it no longer", place)
    for cell in cells:
        yield from comparison.of(cell)


def _given_source(path: Path, *expected: str) -> Check:
    """Check that the model at `path` is the expected model, or the ONNX file exported from it."""
    is_onnx = path.suffix.lower() == ".onnx"
    digest = digests.digest_of_model(Artifact.open(path) if is_onnx else Source.of(path))
    if digest in expected:
        return Check(subject="source", status="holds", said=f"{path} is unchanged")
    said = f"{path} has other content, {expected[0][:12]} -> {digest[:12]}"
    return Check(subject="source", status="fails", said=said)


def _versions(made: Mapping[str, str]) -> Check:
    changed = [
        f"{name} {version} -> {here or 'none'}"
        for name, version in sorted(made.items())
        if (here := _installed_version(name, version)) != version
    ]
    said = f"a run would use {', '.join(changed)}" if changed else "a run would use the same"
    return Check(subject="versions", status="later" if changed else "holds", said=said)


def _installed_version(name: str, unknown: str) -> str | None:
    """Return the version of `name` on this machine; `unknown` for a tool in a separate environment."""
    import importlib.metadata

    known = {"onnxport": __version__, **machine()}
    if name in known:
        return known[name]
    if name in LIBRARIES:
        return LIBRARIES[name].version
    try:
        return importlib.metadata.version(name)
    except (importlib.metadata.PackageNotFoundError, ValueError):  # no name at all
        return unknown if name in ("onnx2tf", "paddle2onnx") else None
