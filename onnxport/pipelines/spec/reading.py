"""Reads a pipeline.yaml and writes it out: every stage and target on every model, with the params that they have."""

from __future__ import annotations

import glob
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from onnxport.artifact import SUFFIXES, Artifact
from onnxport.errors import InputError, UsageError
from onnxport.exporters.params import ExportParams
from onnxport.exporters.sources import Source
from onnxport.pipelines import stages
from onnxport.pipelines.jobs import Step, judged_on, steps_to
from onnxport.pipelines.spec.document import Document
from onnxport.pipelines.spec.pipeline import Cell, Limits, NamedModel, Node, Pipeline
from onnxport.pipelines.spec.schema import ModelSpec, PipelineSpec, StageSpec, TargetSpec
from onnxport.pipelines.stages import RefusedValue, Stage, check_known, params_of
from onnxport.pipelines.worth import TIMED, UNTIMED
from onnxport.quantize.params import QuantizeParams, calibrated_fields
from onnxport.validate.debug.params import bytes_of
from onnxport.validate.params import ValidateParams

P = TypeVar("P", bound=BaseModel)
_LATENCY = "max_latency_ratio"
_LIMITS = ("max_size", "max_size_ratio", _LATENCY)


def read(path: Path) -> Pipeline:
    """The pipeline in the file `path`.

    Raises:
        InputError: it, or a model, is missing or unreadable.
        UsageError: it says something that cannot be meant; the message has the line and the key.
    """
    document = Document.load(path)
    return _Reading(document, _spec(document)).pipeline()


def _spec(document: Document) -> PipelineSpec:
    try:
        return PipelineSpec.model_validate(document.data)
    except ValidationError as error:
        refusal = error.errors(include_url=False)[0]
        raise UsageError(f"{document.where(refusal['loc'])}: {refusal['msg']}") from None


@dataclass
class _Reading:
    document: Document
    spec: PipelineSpec
    nodes: dict[str, Node] = field(default_factory=dict)

    def pipeline(self) -> Pipeline:
        models = list(self._models())
        cells = [cell for model in models for cell in self._cells_of(model)]
        reports = tuple(self._path(report) for report in self.spec.reports)
        return Pipeline(
            self.document.path, tuple(self.nodes.values()), tuple(cells), reports, self.spec.diagnose
        )

    def _path(self, given: str | Path) -> Path:
        return self.document.path.parent / given

    def _models(self) -> Iterator[NamedModel]:
        named = dict(self.spec.models)
        if self.spec.model is not None:
            with self.document.blamed("model"):
                yield from self._found("", self.spec.model)
        for name, spec in named.items():
            with self.document.blamed("models", name):
                yield from self._found(name, spec)

    def _found(self, name: str, given: str | ModelSpec) -> Iterator[NamedModel]:
        spec = ModelSpec(source=given) if isinstance(given, str) else given
        place = str(self._path(spec.source))
        if glob.has_magic(spec.source):
            found = sorted(glob.glob(place))
            if not found:
                raise InputError(f"no file matches {spec.source}")
            for file in found:
                yield NamedModel(Path(file).stem, Artifact.open(file))
        elif place.lower().endswith(".onnx"):
            yield NamedModel(name or Path(place).stem, Artifact.open(place))
        else:
            params = self._rooted(params_of(ExportParams, spec.export, purpose="export"))
            is_factory = ":" in spec.source
            origin = Source.of(spec.source if is_factory else place, params.weights)
            own = name or Path(spec.source.rpartition(":")[2]).stem
            yield NamedModel(own, origin, params, self._validation((), spec.validate_, {}))

    def _cells_of(self, model: NamedModel) -> Iterator[Cell]:
        for name, target in self.spec.targets.items():
            if target.models and model.name not in target.models:
                continue
            for values in _combinations(target.matrix):
                with self.document.blamed("targets", name):
                    yield self._cell(model, name, target, values)

    def _cell(self, model: NamedModel, name: str, target: TargetSpec, values: dict[str, Any]) -> Cell:
        options = {**target.options, **values}
        start = options.pop("from", target.from_)
        shown = {key: str(value) for key, value in values.items()}
        label = "/".join((model.name, name, *shown.values()))
        after = self._stage_node(model, start, ())
        if target.to == "onnx":
            if after is None:
                raise UsageError(
                    "an ONNX file of the model itself would be a copy", fix="name a stage with from"
                )
            node, suffix = after, ".onnx"
        else:
            stage = stages.target(target.to)
            purpose = f"converting to {target.to}"
            check_known(options, stage.params, purpose=purpose, further=calibrated_fields())
            steps = steps_to(stage, options, purpose)
            node = self._chained(model, label, after, steps, target.validate_, options)
            suffix = SUFFIXES[stage.gives]
        output = self._output(model, name, target, shown, suffix)
        return Cell(model.name, name, node, output, shown, self._limits(name, target, node))

    def _limits(self, name: str, target: TargetSpec, node: Node) -> Limits:
        gives = "onnx" if node.step is None else node.step.stage.gives
        if target.max_latency_ratio is not None and gives not in TIMED:
            refusal = RefusedValue(_LATENCY, target.max_latency_ratio, "set this limit for another target")
            refusal.why = UNTIMED
            raise refusal
        size = _size(target.max_size)
        places = {key: self.document.where(("targets", name, key)) for key in _LIMITS}
        return Limits(size, target.max_size_ratio, target.max_latency_ratio, places)

    def _output(
        self, model: NamedModel, name: str, target: TargetSpec, values: Mapping[str, str], suffix: str
    ) -> Path:
        if target.output is None:
            return self._path(self.spec.output) / model.name / ("-".join((name, *values.values())) + suffix)
        return self._path(target.output.format(model=model.name, target=name, **values))

    def _stage_node(self, model: NamedModel, name: str | None, below: tuple[str, ...]) -> Node | None:
        """The node of the stage `name` on a model; of none the export's, or None where there is none."""
        if name is None:
            if model.export is None:
                return None
            return self._kept(Node(f"{model.name}/export", model, None, None, model.validation))
        if name in below:
            raise UsageError(f"stage {name!r} takes its own result: {' from '.join((*below, name))}")
        if name not in self.spec.stages:
            raise UsageError(f"there is no stage {name!r}", fix=f"stages are {', '.join(self.spec.stages)}")
        spec = self.spec.stages[name]
        with self.document.blamed("stages", name):
            after = self._stage_node(model, spec.from_, (*below, name))
            stage = stages.shared(spec.use)
            step = self._step(stage, spec)
            return self._chained(model, f"{model.name}/{name}", after, (step,), spec.validate_, spec.options)

    def _step(self, stage: Stage, spec: StageSpec) -> Step:
        options = dict(spec.options)
        shared = self.spec.validate_.get("preprocess")
        if stage.params is QuantizeParams and shared and "calib" in options:
            options.setdefault("preprocess", shared)
        return Step(stage, params_of(stage.params, options, purpose=f"the stage {stage.name}"))

    def _chained(
        self,
        model: NamedModel,
        name: str,
        after: Node | None,
        steps: tuple[Step, ...],
        proof: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> Node:
        for number, step in enumerate(steps):
            step = Step(step.stage, self._rooted(step.params))
            so_far = (*((each.step for each in after.chain if each.step) if after else ()), step)
            own = name if number == len(steps) - 1 else f"{name}/{step.stage.name}"
            validation = self._validation(so_far, proof, options)
            after = self._kept(Node(own, model, step, after, validation))
        assert after is not None
        return after

    def _validation(
        self, steps: tuple[Step, ...], proof: Mapping[str, Any], options: Mapping[str, Any]
    ) -> ValidateParams:
        """How a product is judged: the pipeline's options, its own, and those of the stage that are the proof's too."""
        shared = {key: value for key, value in options.items() if key in ("shape", "state")}
        asked = {**self.spec.validate_, **proof, **shared}
        check_known(asked, ValidateParams, purpose="validate")
        for key in ("inputs", "report_tensors"):
            if isinstance(asked.get(key), str):
                asked[key] = self._path(asked[key])
        return params_of(ValidateParams, judged_on(steps, asked), purpose="validate")

    def _kept(self, node: Node) -> Node:
        return self.nodes.setdefault(node.name, node)

    def _rooted(self, params: P) -> P:
        """`params` with paths that start from the file's folder."""
        update = {
            name: _rooted(getattr(params, name), self.document.path.parent)
            for name in type(params).model_fields
        }
        return params.model_copy(update={name: value for name, value in update.items() if value is not None})


def _rooted(value: Any, folder: Path) -> Any:
    """`value` with its paths under `folder`; None where it has none."""
    if isinstance(value, Path):
        return folder / value
    if isinstance(value, dict) and any(isinstance(each, Path) for each in value.values()):
        return {key: folder / each if isinstance(each, Path) else each for key, each in value.items()}
    return None


def _combinations(matrix: Mapping[str, tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*matrix.values()):
        yield dict(zip(matrix, values, strict=True))


def _size(given: str | None) -> int | None:
    """A limit on a file's size in bytes; units are decimal, as a file manager shows them."""
    try:
        return None if given is None else bytes_of(given)
    except ValueError as error:
        raise RefusedValue("max_size", given, str(error)) from None
