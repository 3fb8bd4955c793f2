"""Reads the models of a pipeline.yaml: single files, patterns, and sources to export."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxport.core import reads
from onnxport.core.errors import InputError, UsageError
from onnxport.core.urls import is_url
from onnxport.exporters.params import ExportParams
from onnxport.exporters.sources import Source
from onnxport.formats.artifact import Artifact
from onnxport.pipelines.config.document import Part, Place, show
from onnxport.pipelines.config.options import Options, OptionsReader, Proofs
from onnxport.pipelines.config.schema import ModelSpec, PipelineSpec, TargetSpec
from onnxport.pipelines.params import params_of
from onnxport.pipelines.runner.jobs import check_export

# In names of models, stages and targets, which become folders and files.
_NO_NAME = frozenset('/\\:*?"<>|{}')


@dataclass(frozen=True)
class Origin:
    """A model as the file names it.

    Attributes:
        group: its key in the file; all models of a pattern have the same.
        export: the options of the export; None for an ONNX file.
    """

    name: str
    place: Place
    group: str
    source: Artifact | Source
    export: ExportParams | None = None
    proofs: Proofs | None = None

    def is_for(self, target: TargetSpec) -> bool:
        """Return whether the target applies to this model."""
        return not target.models or not {self.name, self.group}.isdisjoint(target.models)


@dataclass
class ModelsReader:
    """Reads the models; leaves out faulty ones."""

    options: OptionsReader
    _names: dict[str, Place] = field(default_factory=dict)

    def found(self, spec: PipelineSpec) -> list[Origin]:
        """Return all models of `spec`, in its order."""
        faults = self.options.faults
        if spec.model is not None and spec.models is not None:
            what = "model is for a single model, but there are models as well"
            faults.add(what, "model", fix="put it under models")
        if spec.model is None and not spec.models:
            fix = "write model: FILE.onnx, or several under models"
            faults.add("there is no model", *(["models"] if spec.models is not None else []), fix=fix)
        origins: list[Origin] = []
        for place, key, given in _entries(spec):
            with faults.catching(*place):
                origins += self._of(place, key, given)
        return origins

    def _of(self, place: Place, key: str, given: object) -> list[Origin]:
        if isinstance(given, str):
            given = {"source": given}
        elif not isinstance(given, Mapping):
            fix = "give a path, or keys: source, export, validate"
            raise UsageError(f"{show(given)} is not a model", fix=fix)
        if key:
            check_name(key, "model")
        spec = self.options.section(ModelSpec, place, given)
        if spec is None:
            return []
        proofs = self.options.proofs((*place, "validate"), spec.validate_)
        params = self._export(place, spec)
        sources = list(self._sources(spec.source, params))
        named = key if (is_url(spec.source) or not glob.has_magic(spec.source)) and len(sources) == 1 else ""
        found = []
        for source in sources:
            with self.options.faults.catching(*place):
                name = named or _own_name(source)
                self._claim(name, place, source, checked=bool(named))
                if isinstance(source, Artifact) and spec.export:
                    what = f"{source.path} is ONNX already, so export has no effect"
                    raise UsageError(what, fix="leave it out")
                if isinstance(source, Source) and params is not None:
                    check_export(source, params)
                export = None if isinstance(source, Artifact) else params or ExportParams()
                found.append(Origin(name, place, key, source, export, proofs))
        return found

    def _claim(self, name: str, place: Place, source: Artifact | Source, *, checked: bool) -> None:
        """Refuse a name that is impossible or taken (UsageError)."""
        if not checked:
            check_name(name, "model")
        if name in self._names:
            first = self.options.faults.where(*self._names[name])
            raise UsageError(
                f"{source.path} has the name {name!r}, like the model of {first}",
                fix="give each a name of its own: models: {NAME: PATH}",
            )
        self._names[name] = place

    def _export(self, place: Place, spec: ModelSpec) -> ExportParams | None:
        place, fields = (*place, "export"), ExportParams.model_fields
        given = Options.at(place, spec.export)
        fitted = self.options.fit(self.options.select_known(given, fields, purpose="export"), fields)
        params = self.options.fill(
            lambda values: params_of(ExportParams, values, purpose="export"), fitted, place, fields
        )
        return params and self.options.resolve_paths(params, fitted, place)

    def _sources(self, given: str, params: ExportParams | None) -> Iterator[Artifact | Source]:
        place = self.options.path(given)
        if is_url(given) or not glob.has_magic(given) or place.exists():
            yield self._open(given, place, params)
            return
        reads.look(reads.matches, str(place))
        files = sorted(glob.glob(str(place), recursive=True))
        if not files:
            raise InputError(f"no file matches {given}", fix="patterns start from the pipeline's folder")
        for file in files:
            with self.options.faults.catching():
                yield self._open(file, Path(file), params)

    def _open(self, given: str, place: Path, params: ExportParams | None) -> Artifact | Source:
        if place.suffix.lower() == ".onnx":
            return Artifact.open(place)
        weights = params.weights if params else None
        is_factory = ":" in given and not place.exists()
        return Source.of(given if is_factory else place, weights, folder=self.options.folder)


def check_name(name: str, what: str) -> None:
    """Refuse a name that no folder may have (UsageError)."""
    if not name.isprintable() or _NO_NAME & set(name) or name[0] in ".- " or name[-1] in ". ":
        raise UsageError(
            f"{name!r} cannot name a {what}",
            why="it becomes part of paths",
            fix="use letters, digits, _, - and ., a letter or digit first",
        )


def _entries(spec: PipelineSpec) -> Iterator[tuple[Place, str, Any]]:
    if spec.model is not None:
        yield ("model",), "", spec.model
    if isinstance(spec.models, Mapping):
        for key, given in spec.models.items():
            yield ("models", key), key, given
    elif isinstance(spec.models, list):
        for number, given in enumerate(spec.models):
            entry: tuple[Part, ...] = ("models", number)
            yield entry, "", given
    elif spec.models is not None:
        yield ("models",), "", spec.models


def _own_name(source: Artifact | Source) -> str:
    """Return the name of the file, or of a factory's function."""
    if isinstance(source, Source) and source.is_factory:
        return source.name.rpartition(":")[2].rpartition(".")[2]
    return source.path.stem
