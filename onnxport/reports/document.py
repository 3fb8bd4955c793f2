"""The JSON form of every report, and the JSON Schema of each kind of report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue

from onnxport.core.errors import printable_json

# Kind of report, as docs/schema/KIND.schema.json names it: module and class of its model, and the schema's title.
_KINDS: Mapping[str, tuple[str, str, str]] = {
    "report": ("onnxport.reports.run_report", "RunReport", "Report of an onnxport run"),
    "pipeline-report": (
        "onnxport.reports.pipeline_report",
        "PipelineReport",
        "Report of an onnxport pipeline's run",
    ),
    "bench": ("onnxport.bench.report", "BenchReport", "Report of onnxport bench"),
    "results": (
        "onnxport.bench.results",
        "Results",
        "Results measured elsewhere, for onnxport bench --against",
    ),
    "profile": ("onnxport.profiling.report", "ProfileReport", "Report of onnxport profile"),
    "deployment": ("onnxport.deployment.report", "DeploymentReport", "Report of onnxport inspect --runs-on"),
}


def view(report: BaseModel) -> str:
    """Return the whole report; non-finite numbers are the strings "Infinity", "-Infinity" and "NaN"."""
    return printable_json(report.model_dump_json(indent=2)) + "\n"


def schema(kind: str) -> str:
    """Return the text of docs/schema/KIND.schema.json."""
    module, name, title = _KINDS[kind]
    model: type[BaseModel] = getattr(import_module(module), name)
    (version,) = (field.default for key, field in model.model_fields.items() if key.endswith("_version"))
    is_read = kind == "results"  # written by others, who may leave out what has a default
    mode: JsonSchemaMode = "validation" if is_read else "serialization"
    document = model.model_json_schema(mode=mode, schema_generator=_OpenSchema)
    head: dict[str, Any] = {
        "$schema": GenerateJsonSchema.schema_dialect,
        "$id": f"urn:onnxport:schema:{kind}:{version}",
        "title": title,
    }
    return json.dumps(head | {k: v for k, v in document.items() if k not in head}, indent=2) + "\n"


class _OpenSchema(GenerateJsonSchema):
    """Pydantic's schema with non-finite numbers as strings, and open to fields that a later version adds."""

    def float_schema(self, schema: Any) -> JsonSchemaValue:
        return {"anyOf": [super().float_schema(schema), {"enum": ["Infinity", "-Infinity", "NaN"]}]}

    def model_schema(self, schema: Any) -> JsonSchemaValue:
        described = super().model_schema(schema)
        described.pop("additionalProperties", None)
        return described
