"""The report of a bench as a JSON document, and the JSON Schema that every such document keeps."""

from __future__ import annotations

from onnxport.bench.report import SCHEMA_VERSION, BenchReport
from onnxport.reports.document import published, view

__all__ = ["schema", "view"]


def schema() -> str:
    """docs/schema/bench.schema.json, whose copy in the repository a test holds to this."""
    return published(BenchReport, f"bench:{SCHEMA_VERSION}", "Report of onnxport bench")
