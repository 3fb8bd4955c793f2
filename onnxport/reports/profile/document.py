"""The report of a profile as a JSON document, and the JSON Schema that every such document keeps."""

from __future__ import annotations

from onnxport.profiling.report import SCHEMA_VERSION, ProfileReport
from onnxport.reports.document import published, view

__all__ = ["schema", "view"]


def schema() -> str:
    """docs/schema/profile.schema.json, whose copy in the repository a test holds to this."""
    return published(ProfileReport, f"profile:{SCHEMA_VERSION}", "Report of onnxport profile")
