"""The JSON Schema of pipeline.yaml, for editors that complete keys and mark errors.

The options come from the params models, by the value of `use` or `to`. Each value has a whole schema of its own (`if`
and `then`), since not every editor supports unevaluatedProperties.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from onnxport.exporters.params import ExportParams
from onnxport.pipelines import registry
from onnxport.pipelines.config.options import proof_fields
from onnxport.pipelines.config.schema import ModelSpec, PipelineSpec, Section, StageSpec, TargetSpec, keys_of
from onnxport.pipelines.stages import Stage
from onnxport.quantize.params import QuantizeParams, calibrated_fields
from onnxport.reports.pipeline.option_keys import spell_as_keys
from onnxport.validate.params import ValidateParams

Schema = dict[str, Any]


def _reference(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


_TEXT, _TEXTS, _VARIABLE, _MODEL = map(_reference, ("text", "texts", "variable", "model"))
_PROOF: Schema = {"anyOf": [{"type": "boolean"}, _reference("proof")]}
_SHARED: dict[str, Schema] = {
    "text": {"type": ["string", "number", "boolean"]},
    "texts": {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]},
    "variable": {
        "description": "Filled in from the environment.",
        "type": "string",
        "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^{}]*)?\}",
    },
}


def schema(*, plugins: bool = True) -> str:
    """Return the schema as JSON text, draft 2020-12; docs/schema/pipeline.schema.json is the one without plugins."""
    shared, targets = registry.STAGES, registry.TARGETS
    if plugins:
        shared = {name: registry.shared_stage(name) for name in registry.known_stages()}
        targets = {name: registry.target(name) for name in registry.known_targets()}
    export = _object(_options(ExportParams, ExportParams.model_fields))
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:onnxport:schema:pipeline:1",
        "title": "An onnxport pipeline",
        **_section(PipelineSpec, _pipeline()),
        "required": ["version"],
        "anyOf": [{"required": ["targets"]}, {"required": ["include"]}],
        "$defs": {
            **_SHARED,
            "proof": _object(_options(ValidateParams, proof_fields())),
            "model": {
                "anyOf": [{"type": "string"}, _section(ModelSpec, {"export": export, "validate": _PROOF})]
            },
            **_alternatives(StageSpec, "stage", "use", shared),
            **_alternatives(TargetSpec, "target", "to", {**targets, "onnx": None}),
        },
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _pipeline() -> dict[str, Schema]:
    """Return the top-level keys that pydantic cannot describe."""
    models = [{"type": "string"}, {"type": "array", "items": _MODEL}, _mapping_of(_MODEL)]
    return {
        "version": {"const": 1},
        "model": _MODEL,
        "models": {"anyOf": models},
        "validate": _PROOF,
        "stages": _mapping_of(_reference("stage")),
        "targets": {**_mapping_of(_reference("target")), "minProperties": 1},
    }


def _alternatives(
    section: type[Section], name: str, key: str, kinds: Mapping[str, Stage | None]
) -> dict[str, Schema]:
    """Return the definitions of a stage or target: the common part, and one per value of `key`."""
    described = section.model_fields[key].description
    choice = {"description": described, "anyOf": [{"enum": list(kinds)}, _VARIABLE]}
    cases = [
        {
            "if": {"properties": {key: {"const": kind}}, "required": [key]},
            "then": _reference(f"{name}-{kind}"),
        }
        for kind in kinds
    ]
    either = {"type": "object", "properties": {key: choice}, "required": [key], "allOf": cases}
    found: dict[str, Schema] = {name: either}
    for kind, stage in kinds.items():
        own: dict[str, Schema] = {key: {"description": described, "const": kind}}
        if stage is not None:
            calibrated = calibrated_fields() if section is TargetSpec else {}
            own |= _options(QuantizeParams, calibrated) | _options(stage.params, stage.params.model_fields)
        if section is TargetSpec:
            own["matrix"] = _matrix(f"{name}-{kind}", own.keys() - {key})
        if stage is not None or section is not TargetSpec:
            own["validate"] = _PROOF
        found[f"{name}-{kind}"] = _section(section, own, without=() if stage else ("validate",))
    return found


def _matrix(definition: str, options: Iterable[str]) -> Schema:
    axes: dict[str, Schema] = {
        name: {
            "type": "array",
            "minItems": 1,
            "items": {"anyOf": [_reference(f"{definition}/properties/{name}"), {"type": "null"}]},
        }
        for name in sorted(options)
    }
    stage = {"type": ["string", "null"]}
    return _object({"from": {"type": "array", "minItems": 1, "items": stage}, **axes})


def _section(section: type[Section], own: Mapping[str, Schema], without: Iterable[str] = ()) -> Schema:
    """Return the schema of a section's keys; `own` replaces some."""
    generated = section.model_json_schema()
    properties: dict[str, Schema] = {}
    for key in [*own, *keys_of(section)]:
        if key not in properties and key not in without:
            given = own.get(key) or _in_yaml(generated["properties"][key])
            described = generated["properties"].get(key, {}).get("description")
            properties[key] = {"description": described, **given} if described else given
    ordered = {key: properties[key] for key in keys_of(section) if key in properties} | properties
    return (
        {**_object(ordered), "required": generated["required"]}
        if "required" in generated
        else _object(ordered)
    )


def _options(model: type[BaseModel], names: Iterable[str]) -> dict[str, Schema]:
    generated = model.model_json_schema()["properties"]
    return {name: _in_yaml(generated[name]) for name in names}


def _object(properties: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": dict(properties)}


def _mapping_of(each: Schema) -> Schema:
    return {"type": "object", "additionalProperties": each}


def _in_yaml(generated: Schema) -> Schema:
    """Convert pydantic's schema of an option to the forms that a pipeline.yaml may use."""
    kinds = [each for each in generated.get("anyOf", [generated]) if each.get("type") != "null"]
    forms: list[Schema] = [form for kind in kinds for form in _forms(kind)]
    unique = [form for number, form in enumerate(forms) if form not in forms[:number]]
    found: Schema = {"description": spell_as_keys(generated["description"])}
    if generated.get("default") not in (None, {}, []):
        found["default"] = generated["default"]
    return found | (unique[0] if len(unique) == 1 else {"anyOf": unique})


_OF_VALUES = ("type", "enum", "const", "minimum", "maximum", "exclusiveMinimum")


def _forms(kind: Schema) -> list[Schema]:
    if kind.get("type") == "object":
        return [_mapping_of(_value_schema(kind["additionalProperties"])), _TEXTS]
    if kind.get("type") == "array":
        return [_TEXTS]
    if kind.get("type") == "string" and not {"enum", "const"} & kind.keys():
        return [_TEXT]
    return [{key: value for key, value in kind.items() if key in _OF_VALUES}, _VARIABLE]


def _value_schema(value: Schema) -> Schema:
    kinds = value.get("type")
    if kinds == "number":
        return {"anyOf": [{"type": "number"}, _VARIABLE]}
    if kinds == "string":
        return _TEXT
    if isinstance(kinds, list):
        return {"type": kinds if "boolean" in kinds else [*kinds, "boolean"]}
    return {"type": ["string", "array", "object"]}
