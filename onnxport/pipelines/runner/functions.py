"""The further models of a package with several functions (`--function`): reads and judges them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel

from onnxport.core.errors import InputError
from onnxport.formats.artifact import Artifact
from onnxport.formats.manifest import MAIN
from onnxport.pipelines.runner.clock import Clock
from onnxport.pipelines.runner.model_sources import load, reading
from onnxport.pipelines.runner.verdicts import open_judge, start_reference, verdict, waive
from onnxport.pipelines.stages import Product

if TYPE_CHECKING:
    from onnxport.formats.model import Model
    from onnxport.validate.params import ValidateParams
    from onnxport.validate.report import Report

P = TypeVar("P", bound=BaseModel)

# Options about inputs and outputs: they apply to the models with such a name.
_BY_NAME = ("shape", "image", "labels", "state", "map", "budget")
# Options of the main model only: models seldom share inputs, and a file is written once.
_OF_THE_FIRST: Mapping[str, object] = {"inputs": None, "preprocess": {}, "report_tensors": None}


def load_models(first: Model, further: Mapping[str, Path]) -> dict[str, Model]:
    """Load every function's model, with `first` as the main one; InputError if one cannot be read."""
    models = {MAIN: first}
    for name, path in further.items():
        artifact = Artifact.open(path)
        if artifact.format != "onnx":
            raise InputError(f"{path} is in {artifact.format} format", fix="give a .onnx file")
        with reading(artifact):
            models[name], _ = load(artifact)
    return models


def options_for(params: P, name: str, models: Mapping[str, Model]) -> P:
    """Return the options of the function `name`; the main one also gets unknown names, to refuse them."""
    if len(models) == 1:
        return params
    own = _names(models[name])
    known = {each for model in models.values() for each in _names(model)}
    update: dict[str, object] = {}
    for field in _BY_NAME:
        if given := getattr(params, field, None):
            update[field] = {
                key: value
                for key, value in given.items()
                if _is_for(key, field, own) or (name == MAIN and not _is_for(key, field, known))
            }
    fields = {} if name == MAIN else type(params).model_fields
    update |= {field: value for field, value in _OF_THE_FIRST.items() if field in fields}
    return params.model_copy(update=update)


def _is_for(key: str, field: str, names: set[str]) -> bool:
    if field != "budget":
        return key in names
    output, colon, _ = key.rpartition(":")
    return not colon or output in names


def _names(model: Model) -> set[str]:
    return {spec.name for spec in (*model.inputs, *model.outputs)}


def validation_of(params: ValidateParams, name: str, models: Mapping[str, Model]) -> ValidateParams:
    """Return the options of the proof of the function `name`."""
    params = options_for(params, name, models)
    if len(models) == 1:
        return params
    return params.model_copy(update={"candidate_runtime": {**params.candidate_runtime, "function": name}})


def judge(
    name: str, models: Mapping[str, Model], product: Product, params: ValidateParams | None, clock: Clock
) -> Report:
    """Judge a further function of the product; `params` is None for no proof."""
    model = models[name]
    if params is None:
        return waive(model.artifact, product.artifact)
    own = validation_of(params, name, models)
    with (
        start_reference(model.artifact, own) as runtime,
        open_judge(model.artifact, own, runtime, model, product.artifact, tell=clock.tell) as asked,
    ):
        return verdict(asked, model.artifact, product, clock)
