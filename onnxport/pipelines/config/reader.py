"""Reads a pipeline.yaml and expands it: every stage and target on every model, with its params."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxport.core.errors import UsageError
from onnxport.core.urls import is_url
from onnxport.exporters.params import ExportParams
from onnxport.formats.artifact import FORMATS, SUFFIXES, Artifact
from onnxport.pipelines import registry
from onnxport.pipelines.cache import home_of
from onnxport.pipelines.config import outputs
from onnxport.pipelines.config.chains import Chain, ChainReader, Link, Request
from onnxport.pipelines.config.document import Document, Faults, Place, show
from onnxport.pipelines.config.models import ModelsReader, Origin, check_name
from onnxport.pipelines.config.options import Options, OptionsReader, Proofs
from onnxport.pipelines.config.outputs import Claim
from onnxport.pipelines.config.pipeline import Cell, Limits, NamedModel, Node, Pipeline
from onnxport.pipelines.config.schema import PipelineSpec, StageSpec, TargetSpec
from onnxport.pipelines.config.yaml_files import load
from onnxport.pipelines.params import suggest
from onnxport.pipelines.runner.speedup import TIMED, UNTIMED
from onnxport.reports import FORMATS as REPORTS
from onnxport.reports.pipeline import files_of
from onnxport.reports.trackers import tracker_of

_MEASURED = ("max_latency", "max_latency_ratio", "max_load", "max_memory")
_LIMITS = ("max_size", "max_size_ratio", *_MEASURED)
# The target without a stage of its own: it delivers the product of a shared stage.
_ONNX = "onnx"


def read(path: Path) -> Pipeline:
    """Read the pipeline in the file `path`.

    Raises:
        InputError: the file, a model or a folder of samples is missing or unreadable.
        UsageError: the file has a fault; the message has the line and the key.
        BadPipelineError: the file has several faults.
    """
    document = load(path)
    faults = Faults(document)
    metrics = frozenset(str(name).rpartition(":")[2] for name in _find_values(document.data, "metric"))
    options = OptionsReader(faults, path.parent, metrics)
    spec = options.section(PipelineSpec, (), document.data)
    pipeline = None if spec is None else _Reader(document, faults, options, spec).pipeline()
    faults.check()
    assert pipeline is not None, "what leads to none is a fault"
    return pipeline


@dataclass(frozen=True)
class _CellRequest:
    """A cell before its node exists."""

    origin: Origin
    target: str
    values: Mapping[str, str]
    chain: Chain
    output: Path
    limits: Limits
    place: Place

    @property
    def name(self) -> str:
        return "/".join((self.origin.name, self.target, *self.values.values()))


@dataclass
class _Reader:
    document: Document
    faults: Faults
    options: OptionsReader
    spec: PipelineSpec
    stages: dict[str, StageSpec | None] = field(default_factory=dict)
    targets: dict[str, TargetSpec | None] = field(default_factory=dict)

    def pipeline(self) -> Pipeline | None:
        spec = self.spec
        self._sections()
        proofs = Proofs().overridden_by(self.options.proofs(("validate",), spec.validate_))
        images = [*_find_values(self.document.data, "inputs"), *_find_values(self.document.data, "calib")]
        if "preprocess" in proofs.options.values and not images:
            fix = "give the folder of images as inputs, or calib to a stage or target"
            self.faults.add("there is nothing to preprocess", "validate", "preprocess", fix=fix)
        origins = ModelsReader(self.options).found(spec)
        chains = ChainReader(self.options, self.stages, proofs)
        requests = [
            request for origin in origins or [_STAND_IN] for request in self._requests(chains, origin)
        ]
        self._check_used(chains, origins)
        reports = tuple(self._reports())
        if not origins:
            return None
        nodes, cells = _build_graph(requests, self.document)
        self._check_no_overlap(origins, requests, reports)
        return Pipeline(self.document.path, nodes, cells, reports, spec.diagnose)

    def _sections(self) -> None:
        for name, given in self.spec.stages.items():
            self.stages[name] = self.options.section(StageSpec, ("stages", name), given)
            with self.faults.catching("stages", name):
                check_name(name, "stage")
                if name == "export":
                    what = "a stage cannot be called 'export'"
                    raise UsageError(what, fix="give the stage another name")
        for name, given in self.spec.targets.items():
            self.targets[name] = self.options.section(TargetSpec, ("targets", name), given)
            with self.faults.catching("targets", name):
                check_name(name, "target")
                if name in self.stages:
                    where = self.faults.where("stages", name)
                    raise UsageError(f"a stage has this name too ({where})", fix="rename one of them")
        if not self.spec.targets:
            self.faults.add("there is no target", "targets", fix="write NAME: {to: tflite}")
        with self.faults.catching("output"):
            outputs.check_below(self.spec.output)

    def _requests(self, chains: ChainReader, origin: Origin) -> Iterator[_CellRequest]:
        for name, target in self.targets.items():
            if target is None or not origin.is_for(target):
                continue
            for values, places in self._combinations(name, target):
                request = self._request(chains, origin, name, target, Options(values, places))
                if request is not None:
                    yield request

    def _request(
        self, chains: ChainReader, origin: Origin, name: str, target: TargetSpec, cell: Options
    ) -> _CellRequest | None:
        place: Place = ("targets", name)
        labels = {key: outputs.label(value) for key, value in cell.values.items()}
        start = cell.values.get("from", target.from_)
        own = Options.at(place, target.options)
        options = own.overridden_by(cell.without("from"))
        proofs = self.options.proofs((*place, "validate"), target.validate_)
        asked = Request("/".join((name, *labels.values())), place, options, proofs, target.resources)
        before = chains.to_stage(origin, start, place)
        if target.to == _ONNX:
            chain, suffix = self._onnx_chain(origin, asked, before), SUFFIXES["onnx"]
        elif target.to not in registry.known_targets():
            known = (*registry.known_targets(), _ONNX)
            self.faults.add(f"there is no target {target.to!r}", *place, "to", fix=suggest(target.to, known))
            return None
        else:
            chain = chains.to_target(origin, target, asked, before)
            suffix = SUFFIXES[registry.target(target.to).gives]
        limits = self._limits(name, target, suffix)
        output = self._output(origin, name, target, labels, suffix)
        if chain is None or output is None:
            return None
        return _CellRequest(origin, name, labels, chain, output, limits, place)

    def _onnx_chain(self, origin: Origin, asked: Request, before: Chain | None) -> Chain | None:
        """Return the chain of a target that delivers the product of a stage or the export."""
        for name in asked.options.values:
            fix = "an onnx target delivers the product of its stage: put the option in that stage"
            self.faults.add("the target onnx has no options", *asked.options.places[name], fix=fix)
        if asked.proofs is not None:
            fix = "put it in the stage that the target takes"
            self.faults.add("the target onnx has no proof of its own", *asked.place, "validate", fix=fix)
        if before is not None and not before.links:
            fix = "name a stage with from, or give a model that has to be exported"
            what = f"the artefact would be a copy of the model {origin.name}"
            self.faults.add(what, *asked.place, fix=fix)
            return None
        return before

    def _combinations(
        self, name: str, target: TargetSpec
    ) -> Iterator[tuple[dict[str, Any], dict[str, Place]]]:
        """Return the values and places of the matrix keys for each combination; an empty one without a matrix."""
        at: Place = ("targets", name, "matrix")
        axes: list[list[tuple[str, Any, Place]]] = []
        for key, given in target.matrix.items():
            with self.faults.catching(*at, key):
                values = self._axis(name, target, key, given)
                axes.append([(key, value, (*at, key, number)) for number, value in enumerate(values)])
        for combination in itertools.product(*axes):
            places = {key: place for key, _, place in combination}
            yield {key: value for key, value, _ in combination}, places

    def _axis(self, name: str, target: TargetSpec, key: str, given: object) -> list[Any]:
        if not isinstance(given, list) or not given:
            raise UsageError(f"{show(given)} is not a list of values", fix="write [ONE, ANOTHER]")
        beside = target.from_ if key == "from" else target.options.get(key)
        if beside is not None:
            where = self.faults.where("targets", name, key)
            raise UsageError(f"{key} is given outside of the matrix too ({where})", fix="keep one of them")
        labels = [outputs.label(value) for value in given]
        twice = next((label for label in labels if labels.count(label) > 1), None)
        if twice is not None:
            raise UsageError(f"two values have the name {twice!r} in names of artefacts", fix="keep one")
        if key == "from" and not all(isinstance(value, str | None) for value in given):
            fix = "write [ONE, ANOTHER], null for the model itself"
            raise UsageError("from takes names of stages", fix=fix)
        return given

    def _output(
        self, origin: Origin, name: str, target: TargetSpec, labels: Mapping[str, str], suffix: str
    ) -> Path | None:
        if target.output is None:
            file = "-".join((name, *labels.values())) + suffix
            folder = self.spec.output
            return self.options.target(f"{folder}/" if is_url(folder) else folder) / origin.name / file
        with self.faults.catching("targets", name, "output"):
            values = {"model": origin.name, "target": name, **labels}
            return self.options.target(outputs.fill_template(target.output, values, suffix))
        return None

    def _limits(self, name: str, target: TargetSpec, suffix: str) -> Limits:
        place: Place = ("targets", name)
        for key in _MEASURED:
            if getattr(target, key) is not None and FORMATS[suffix] not in TIMED:
                what, fix = "this limit cannot be checked", "set it for another target"
                self.faults.add(what, *place, key, why=UNTIMED, fix=fix)
        places = {key: self.faults.where(*place, key) for key in _LIMITS}
        return Limits(
            size=target.max_size,
            size_ratio=target.max_size_ratio,
            latency=target.max_latency,
            latency_ratio=target.max_latency_ratio,
            load=target.max_load,
            memory=target.max_memory,
            places=places,
        )

    def _reports(self) -> Iterator[Path]:
        seen: set[str] = set()
        for number, report in enumerate(self.spec.reports):
            with self.faults.catching("reports", number):
                outputs.check_below(report)
                suffix = "" if tracker_of(Path(report)) is not None else Path(report).suffix
                if suffix and suffix.lower() not in REPORTS:  # a folder gets all forms
                    fix = f"known suffixes are {', '.join(REPORTS)}"
                    raise UsageError(f"{report!r} has no known report suffix", fix=fix)
                if os.path.normpath(report) in seen:
                    raise UsageError(f"{report} is given twice", fix="keep one")
                seen.add(os.path.normpath(report))
                yield self.options.target(report)

    def _check_used(self, chains: ChainReader, origins: list[Origin]) -> None:
        """Add faults for unknown model names, and for models and stages that no target uses."""
        given = self.spec.models if isinstance(self.spec.models, Mapping) else {}
        known = dict.fromkeys((*given, *(origin.name for origin in origins)))
        targets = {name: target for name, target in self.targets.items() if target is not None}
        unknown = False
        for name, target in targets.items():
            for number, wanted in enumerate(target.models):
                if wanted not in known:
                    unknown = True
                    fix = suggest(wanted, known)
                    self.faults.add(
                        f"there is no model {wanted!r}", "targets", name, "models", number, fix=fix
                    )
        if unknown or not targets or len(targets) < len(self.targets):
            return  # the misspelled name may be the missing one
        for origin in origins:
            if not any(map(origin.is_for, targets.values())) and self.faults.is_in_main_file(*origin.place):
                what = f"no target applies to the model {origin.name}"
                self.faults.add(what, *origin.place, fix="name it in a target, or remove it")
        taken = self._used_stages()
        for name in self.stages.keys() - taken:
            chains.to_stage(origins[0] if origins else _STAND_IN, name, ("stages", name))
            if taken <= self.stages.keys() and self.faults.is_in_main_file("stages", name):
                fix = "name it in a target's from, or remove it"
                self.faults.add("no target takes its result", "stages", name, fix=fix)

    def _used_stages(self) -> set[str]:
        """Return the stages that a target uses, directly or through others."""
        taken: set[str] = set()
        coming = [target.from_ for target in self.targets.values() if target]
        for target in self.targets.values():
            given = target.matrix.get("from") if target else None
            coming += given if isinstance(given, list) else []
        while coming:
            name = coming.pop()
            if isinstance(name, str) and name not in taken:
                taken.add(name)
                spec = self.stages.get(name)
                coming.append(spec.from_ if spec else None)
        return taken

    def _check_no_overlap(
        self, origins: list[Origin], requests: list[_CellRequest], reports: tuple[Path, ...]
    ) -> None:
        kept = [Claim(self.document.path, "this file"), Claim(home_of(self.document.path), "the cache")]
        for origin in origins:
            files = (origin.source.path,) if isinstance(origin.source, Artifact) else origin.source.files
            kept += [Claim(file, f"the model {origin.name}", origin.place) for file in files]
        kept += [Claim(path, "an input", place) for path, place in self.options.read.items()]
        written = [
            Claim(request.output, f"the artefact {request.name}", (*request.place, "output"))
            for request in requests
        ]
        written += [
            Claim(file, "the report", ("reports", number))
            for number, path in enumerate(reports)
            for file in files_of(path)
        ]
        outputs.check_no_overlap(written, kept, self.faults)


# Replaces the models if none can be read, so the rest of the file is still checked.
_STAND_IN = Origin("model", ("model",), "", Artifact(Path("model.onnx"), "onnx"), ExportParams())


def _find_values(data: object, key: str) -> Iterator[object]:
    """Return the values of `key` anywhere in the file; of a list each item."""
    if isinstance(data, list):
        for each in data:
            yield from _find_values(each, key)
    elif isinstance(data, Mapping):
        if key in data:
            yield from data[key] if isinstance(data[key], list) else [data[key]]
        for value in data.values():
            yield from _find_values(value, key)


def _build_graph(
    requests: list[_CellRequest], document: Document
) -> tuple[tuple[Node, ...], tuple[Cell, ...]]:
    """Return the nodes, with equal steps merged into one, and the cells that use them."""
    delivered = {_key(each.origin, each.chain.links) for each in requests}
    models: dict[str, NamedModel] = {}
    for each in requests:
        first, origin = each.chain.links[0], each.origin
        proof = first.validation if first.step is None else None
        models[origin.name] = NamedModel(origin.name, origin.source, origin.export, proof)
    nodes: dict[tuple[str, ...], Node] = {}
    cells = []
    for each in requests:
        node = None
        for number, link in enumerate(each.chain.links, start=1):
            key = _key(each.origin, each.chain.links[:number])
            if key not in nodes:
                model, line, timed = models[each.origin.name], document.line(link.place), key in delivered
                nodes[key] = Node(
                    link.name, model, link.step, node, link.validation, timed, line, link.resources
                )
            node = nodes[key]
        assert node is not None, "a chain without a link delivers nothing"
        line = document.line(each.place)
        cells.append(Cell(each.origin.name, each.target, node, each.output, each.values, each.limits, line))
    return tuple(nodes.values()), tuple(cells)


def _key(origin: Origin, links: tuple[Link, ...]) -> tuple[str, ...]:
    return (origin.name, *(link.identity for link in links))
