"""The report as a JSON document, and the JSON Schema that every such document keeps."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from onnxport.reports.run_report import SCHEMA_VERSION, RunReport


def view(report: BaseModel) -> str:
    """The whole report, of whatever; non-finite numbers are the strings "Infinity", "-Infinity" and "NaN"."""
    return report.model_dump_json(indent=2) + "\n"


def schema() -> str:
    """docs/schema/report.schema.json, whose copy in the repository a test holds to this."""
    return published(RunReport, f"report:{SCHEMA_VERSION}", "Report of an onnxport run")


def published(model: type[BaseModel], name: str, title: str) -> str:
    """The JSON Schema of a document of ours."""
    document = model.model_json_schema(mode="serialization", schema_generator=_Published)
    head: dict[str, Any] = {
        "$schema": GenerateJsonSchema.schema_dialect,
        "$id": f"urn:onnxport:schema:{name}",
        "title": title,
    }
    return json.dumps(head | {k: v for k, v in document.items() if k not in head}, indent=2) + "\n"


class _Published(GenerateJsonSchema):
    """What pydantic writes, with numbers as we write them, and open to fields that a later version adds."""

    def float_schema(self, schema: Any) -> JsonSchemaValue:
        return {"anyOf": [super().float_schema(schema), {"enum": ["Infinity", "-Infinity", "NaN"]}]}

    def model_schema(self, schema: Any) -> JsonSchemaValue:
        described = super().model_schema(schema)
        described.pop("additionalProperties", None)
        return described
