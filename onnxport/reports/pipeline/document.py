"""The report of a pipeline's run as a JSON document, and the JSON Schema that every such document keeps."""

from __future__ import annotations

from onnxport.reports.document import published
from onnxport.reports.pipeline_report import PIPELINE_SCHEMA_VERSION, PipelineReport


def view(report: PipelineReport) -> str:
    """The whole report; non-finite numbers are the strings "Infinity", "-Infinity" and "NaN"."""
    return report.model_dump_json(indent=2) + "\n"


def schema() -> str:
    """docs/schema/pipeline-report.schema.json, whose copy in the repository a test holds to this."""
    name = f"pipeline-report:{PIPELINE_SCHEMA_VERSION}"
    return published(PipelineReport, name, "Report of an onnxport pipeline's run")
