"""What a lock knows of an artefact: its bytes, and the stages that made it with all that they followed from."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from onnxport.exporters.sources import Source
from onnxport.formats.artifact import Artifact
from onnxport.pipelines.config.pipeline import NamedModel, Node
from onnxport.pipelines.graph import digests
from onnxport.pipelines.graph.cache_keys import Inputs, machine
from onnxport.pipelines.report_assembly import moves
from onnxport.reports.run_report import ConsultedRecord

# What keys.inputs_of has beside: the cache's own affairs, what stands with the stages before, what shapes no bytes, and
# the digest of our own code, which would change every lock with every commit of ours. The version tells a release, and
# the bytes tell the rest.
_NOISE = frozenset(("form", "before", "latency"))
_OUR_CODE = "sources"
# Beside them: what the user's own code was, which is not known before it ran.
CODE = "code"


@dataclass(frozen=True)
class LockedStage:
    """A stage as it ran.

    Attributes:
        name: the node's.
        said: what its product followed from, by name: "stage", "source", "options" and "proof" that are not their
            defaults, with digests for the files that they name, and whatever else the key of the cache has.
        versions: of Python, the platform and the libraries.
        product: digest of what it made; empty where that is not known.
    """

    name: str
    said: Mapping[str, Any]
    versions: Mapping[str, str]
    product: str


@dataclass(frozen=True)
class LockedFiles:
    """The bytes of an artefact.

    Attributes:
        files: SHA-256 of each file, the main one first; by its name, in a folder by its way inside.
        digest: of all, as Artifact.digest has it.
        size: bytes of all.
    """

    files: Mapping[str, str]
    digest: str
    size: int

    @classmethod
    def of(cls, artifact: Artifact, output: Path) -> LockedFiles:
        """Those that `artifact` will have at `output`."""
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
    """An artefact as it was made.

    Attributes:
        source: the model: its path from the lock's folder, or package.module:function.
        stages: from the model on.
    """

    model: str
    target: str
    matrix: Mapping[str, str]
    source: str
    verdict: str
    made: LockedFiles
    stages: tuple[LockedStage, ...] = field(default=())

    @property
    def name(self) -> str:
        """The cell's."""
        return "/".join((self.model, self.target, *self.matrix.values()))


def stage_of(node: Node, inputs: Inputs | Mapping[str, Any], product: str = "") -> LockedStage:
    """The stage of `node`, whose product follows from `inputs` (keys.inputs_of) and code of the user's own, if any."""
    said = {key: value for key, value in json.loads(json.dumps(dict(inputs))).items() if key not in _NOISE}
    versions = {name: text for name, text in said.pop("versions").items() if name != _OUR_CODE}
    versions |= {name: said.pop(name) for name in machine()}
    params, proof = params_of(node), said.pop("proof")
    said["options"] = _non_defaults(params, said.pop("params"))
    if node.validation is not None and proof is not None:
        said["proof"] = _non_defaults(node.validation, proof)
    return LockedStage(node.name, said, versions, product)


def with_code(stage: LockedStage, consulted: ConsultedRecord | None, folder: Path) -> LockedStage:
    """A stage with the user's own code that took part, as it was found when it ran.

    Of an export, whose process has nothing else, with the libraries too. Elsewhere it is a metric: it shapes no bytes,
    and what else its process has loaded depends on what that did before.
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
    """Each module, file and library that a stage has from `with_code`."""
    for part, found in stage.said.get(CODE, {}).items():
        for name, state in found.items():
            yield ConsultedRecord(**{part: {str(folder / name) if part == "files" else name: state}})


def params_of(node: Node) -> BaseModel:
    """The options of a node's stage."""
    params = node.model.export if node.step is None else node.step.params
    assert params is not None, "a node without a step is an export"
    return params


def source_of(model: NamedModel, folder: Path) -> str:
    """How the lock names a model."""
    origin = model.origin
    if isinstance(origin, Source) and origin.is_factory:
        return origin.name
    return relative(origin.path, folder)


def relative(path: Path, folder: Path) -> str:
    """The way from `folder` to `path`, the same on every system."""
    return Path(os.path.relpath(path.absolute(), folder.absolute())).as_posix()


def _non_defaults(params: BaseModel, described: Mapping[str, Any]) -> dict[str, Any]:
    """Of `described` (keys.described) what is not the default."""
    fields = type(params).model_fields
    usual = {name for name in fields if getattr(params, name) == default_of(params, name)}
    return {name: value for name, value in described.items() if name not in usual}


def default_of(params: BaseModel, name: str) -> Any:
    """The default of an option; None where there is none, or no such option."""
    known = type(params).model_fields.get(name)
    return None if known is None or known.is_required() else known.get_default(call_default_factory=True)
