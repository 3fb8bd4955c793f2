"""The report of where a model runs as a JSON document, and the JSON Schema that every such document keeps."""

from __future__ import annotations

from onnxport.deployment.report import SCHEMA_VERSION, DeploymentReport
from onnxport.reports.document import published, view

__all__ = ["schema", "view"]


def schema() -> str:
    """docs/schema/deployment.schema.json, whose copy in the repository a test holds to this."""
    return published(DeploymentReport, f"deployment:{SCHEMA_VERSION}", "Report of onnxport inspect --runs-on")
