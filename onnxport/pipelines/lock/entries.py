"""The entries of a lock: an artefact's digests, and the stages that made it with all that they depended on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from onnxport.core.urls import shown
from onnxport.exporters.sources import Source
from onnxport.formats.artifact import Artifact
from onnxport.pipelines.config.pipeline import NamedModel, Node
from onnxport.pipelines.graph import digests
from onnxport.pipelines.graph.cache_keys import Inputs, machine
from onnxport.pipelines.runner.report import moves
from onnxport.reports.run_report import ConsultedRecord

# Parts of a cache key that a lock leaves out: its form, what the stages before have, what changes no bytes, and the
# digest of our own code, which changes with every commit of ours.
_NOISE = frozenset(("form", "before", "latency"))
_OUR_CODE = "sources"
# The user's own code, which is not known before it ran.
CODE = "code"


@dataclass(frozen=True)
class LockedStage:
    """A stage as it ran; `name` is the node's, `product` the digest of its product, empty if unknown.

    Attributes:
        said: what its product depended on, by name: "stage", "source", non-default "options" and "proof", with
            digests of their files, and the other parts of the cache key.
        versions: of Python, the platform and the libraries.
    """

    name: str
    said: Mapping[str, Any]
    versions: Mapping[str, str]
    product: str


@dataclass(frozen=True)
class LockedFiles:
    """The bytes of an artefact: their number and their digest, as Artifact.digest returns it.

    Attributes:
        files: SHA-256 of each file by its name, the main one first; in a folder by its relative path.
    """

    files: Mapping[str, str]
    digest: str
    size: int

    @classmethod
    def of(cls, artifact: Artifact, output: Path) -> LockedFiles:
        """Return the digests that `artifact` will have at `output`."""
        if artifact.is_folder:
            final, places = artifact, {file: file for file in artifact.files}
        else:
            places = {end: file for file, end in moves(artifact, output).items()}
            final = Artifact(output, artifact.format, tuple(sorted(places.keys() - {output})))
        found = {end: digests.sha256(file) for end, file in places.items()}
        root = artifact.path if artifact.is_folder else output.parent
        files = {end.relative_to(root).as_posix(): found[end].hex() for end in final.files}
        return cls(files, final.digest(found.__getitem__), artifact.size)


@dataclass(frozen=True)
class LockedArtefact:
    """An artefact as it was made, with its stages from the model on; `source` is named as in `source_of`."""

    model: str
    target: str
    matrix: Mapping[str, str]
    source: str
    verdict: str
    made: LockedFiles
    stages: tuple[LockedStage, ...] = field(default=())

    @property
    def name(self) -> str:
        """The name of its cell."""
        return "/".join((self.model, self.target, *self.matrix.values()))


def stage_of(node: Node, inputs: Inputs | Mapping[str, Any], product: str = "") -> LockedStage:
    """Return the stage of `node`, whose product depends on `inputs` (cache_keys.inputs_of)."""
    plain = json.loads(json.dumps(dict(inputs), sort_keys=True))  # in the cache they are in this order
    said = {key: value for key, value in plain.items() if key not in _NOISE}
    versions = {name: text for name, text in said.pop("versions").items() if name != _OUR_CODE}
    versions |= {name: said.pop(name) for name in machine()}
    params, proof = params_of(node), said.pop("proof")
    said["options"] = _non_defaults(params, said.pop("params"))
    if node.validation is not None and proof is not None:
        said["proof"] = _non_defaults(node.validation, proof)
    return LockedStage(node.name, said, versions, product)


def with_code(stage: LockedStage, consulted: ConsultedRecord | None, folder: Path) -> LockedStage:
    """Return a stage with the user code that took part in it.

    Libraries count for an export only, which has its own process. Other user code is a metric: it changes no bytes, and
    its process may have loaded libraries before.
    """
    if consulted is None:
        return stage
    files = {
        relative(Path(name), folder): digest
        for name, digest in consulted.files.items()
        if digest not in consulted.modules.values()
    }
    libraries = consulted.libraries if stage.said["stage"] == "export" else {}
    parts = {"modules": consulted.modules, "files": files, "libraries": libraries}
    code = {part: dict(sorted(found.items())) for part, found in parts.items() if found}
    return replace(stage, said={**stage.said, CODE: code}) if code else stage


def code_in(stage: LockedStage, folder: Path) -> Iterator[ConsultedRecord]:
    """Return each module, file and library that `with_code` added to a stage."""
    for part, found in stage.said.get(CODE, {}).items():
        for name, state in found.items():
            yield ConsultedRecord(**{part: {str(folder / name) if part == "files" else name: state}})


def params_of(node: Node) -> BaseModel:
    """Return the options of a node's stage."""
    params = node.model.export if node.step is None else node.step.params
    assert params is not None, "a node without a step is an export"
    return params


def source_of(model: NamedModel, folder: Path) -> str:
    """Return a model's name in the lock."""
    origin = model.origin
    if isinstance(origin, Source) and origin.is_factory:
        return origin.name
    return relative(origin.path, folder)


def relative(path: Path, folder: Path) -> str:
    """Return the relative path from `folder` to `path`, with slashes on every system; of a copy its URL."""
    if (url := shown(str(path))) != str(path):
        return url
    return Path(os.path.relpath(path.absolute(), folder.absolute())).as_posix()


def _non_defaults(params: BaseModel, described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of `described` (cache_keys.describe_params) that is not the default."""
    fields = type(params).model_fields
    usual = {name for name in fields if getattr(params, name) == default_of(params, name)}
    return {name: value for name, value in described.items() if name not in usual}


def default_of(params: BaseModel, name: str) -> Any:
    """Return the default of an option; None without a default, or for an unknown option."""
    known = type(params).model_fields.get(name)
    return None if known is None or known.is_required() else known.get_default(call_default_factory=True)
