"""A cache entry: a product's files and `entry.json`, with their digests and its own, the inputs and the report.

Damage to any of these is found when the entry is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxport.core.packing import Packed
from onnxport.core.urls import shown
from onnxport.formats.artifact import FOLDERS, FORMATS, Artifact
from onnxport.pipelines.cache.files import files_in
from onnxport.pipelines.graph.digests import digest_of_value, sha256
from onnxport.reports.run_report import RunReport

ENTRY = "entry.json"
_FORM = 2


class Damaged(ValueError):
    """An entry that differs from what was written."""


@dataclass(frozen=True)
class Entry:
    """A cached product.

    Attributes:
        artifact: read-only files of this run, whatever other runs do to the cache.
        digest: as Artifact.digest returns it.
        place: its folder in the cache.
        stated: report and inputs; a run keeps an entry of each product to its end.
    """

    key: str
    artifact: Artifact
    digest: str
    node: str
    place: Path
    stated: Packed[tuple[RunReport, Mapping[str, Any]]]

    @property
    def report(self) -> RunReport:
        """The report of the run that made it; files in the entry are named without a folder."""
        return self.stated.open()[0]

    @property
    def inputs(self) -> Mapping[str, Any]:
        return self.stated.open()[1]


@dataclass(frozen=True)
class Note:
    """The content of entry.json: `main` is the product's file or folder, `files` have their SHA-256."""

    key: str
    node: str
    main: str
    files: Mapping[str, str]
    report: RunReport
    inputs: Mapping[str, Any]

    def entry(self, folder: Path, place: Path) -> Entry:
        """Return the entry whose files are in `folder`."""
        main = folder / self.main
        format_ = FORMATS[main.suffix]
        beside = (folder / name for name in sorted(self.files) if name != self.main)
        artifact = Artifact(main, format_, () if format_ in FOLDERS else tuple(beside))
        stated = Packed((self.report, self.inputs))
        return Entry(self.key, artifact, self.digest, self.node, place, stated)

    @property
    def digest(self) -> str:
        """The artefact's digest, from its files' digests."""
        tree = hashlib.sha256()
        inside = f"{self.main}/" if FORMATS[Path(self.main).suffix] in FOLDERS else ""
        names = {name: "" if name == self.main else name.removeprefix(inside) for name in self.files}
        # A folder's files are sorted as paths.
        for name in sorted(names, key=lambda name: Path(name).parts if inside else names[name]):
            tree.update(names[name].encode() + b"\0" + bytes.fromhex(self.files[name]))
        return tree.hexdigest()


def write(folder: Path, key: str, node: str, report: RunReport, inputs: Mapping[str, Any]) -> Note:
    """Write entry.json beside the product in `folder`."""
    stated = report.model_dump(mode="json")
    plain = json.loads(shown(json.dumps(_remove_prefix(stated, f"{folder}/"))))
    files = {name: sha256(folder / name).hex() for name in files_in(folder)}
    said = {
        "form": _FORM,
        "key": key,
        "node": node,
        "main": plain["artifacts"][0]["path"],
        "files": files,
        "report": plain,
        "inputs": dict(inputs),
    }
    text = json.dumps({**said, "digest": digest_of_value(said)}, indent=1, sort_keys=True)
    (folder / ENTRY).write_text(text, encoding="utf-8")
    return _note(said)


def read(folder: Path, key: str) -> Note:
    """Read the entry.json in `folder`; Damaged if it was changed, or has another form or key."""
    try:
        said = json.loads((folder / ENTRY).read_bytes())
        digest = said.pop("digest")
        if digest != digest_of_value(said) or said["form"] != _FORM or said["key"] != key:
            raise Damaged(ENTRY)
        return _note(said)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(ENTRY) from error


def check(folder: Path, note: Note) -> None:
    """Compare all files in `folder` with their digests; Damaged if one is missing, extra or changed."""
    if {*files_in(folder)} - {ENTRY} != note.files.keys():
        raise Damaged("files")
    for name, digest in note.files.items():
        if sha256(folder / name).hex() != digest:
            raise Damaged(name)


def _note(said: Mapping[str, Any]) -> Note:
    report = RunReport.model_validate(said["report"])
    return Note(said["key"], said["node"], said["main"], said["files"], report, said["inputs"])


def _remove_prefix(value: Any, prefix: str) -> Any:
    """Remove `prefix`, the folder of the run, from all texts in `value`."""
    if isinstance(value, str):
        return value.replace(prefix, "")
    if isinstance(value, dict):
        return {key: _remove_prefix(each, prefix) for key, each in value.items()}
    if isinstance(value, list):
        return [_remove_prefix(each, prefix) for each in value]
    return value
