"""The SARIF of a pipeline's run: a result per failure, at the line of the pipeline that asks for it.

A model has no lines and the pipeline has: code scanning shows a result where a reviewer can change something. A stage
that did not run has no result, but its cause has one.
"""

from __future__ import annotations

from pathlib import Path

from onnxport.reports import phrases
from onnxport.reports.pipeline import matrix
from onnxport.reports.pipeline.matrix import Fault
from onnxport.reports.pipeline.services import in_checkout, root
from onnxport.reports.pipeline_report import PipelineReport, PlaceRecord
from onnxport.reports.sarif import (
    VERDICT_RULES,
    Json,
    Rules,
    artifact_location,
    log,
    node_location,
    result,
)

_RULES: Rules = {
    **VERDICT_RULES,
    "failed": (
        "stage-failed",
        "error",
        "A stage of the pipeline ended with an error.",
        "The message says what is wrong and what would help; the same stage runs alone as a single command.",
    ),
    "limit": (
        "limit-exceeded",
        "error",
        "An artefact is larger or slower than its limit allows.",
        "Lower the precision, or raise the limit.",
    ),
}


def view(report: PipelineReport) -> str:
    results = [_result(fault, report) for fault in matrix.faults(report)]
    return log(_RULES, results, report.exit_code, (report.command, *report.arguments))


def _result(fault: Fault, report: PipelineReport) -> Json:
    name = phrases.text(fault.name)
    nodes: list[Json] = [{"name": name, "fullyQualifiedName": name, "kind": "stage"}]
    if fault.diagnosis is not None and fault.diagnosis.node is not None:
        nodes.append(node_location(fault.diagnosis.node))
    kind = "limit" if fault.stage == matrix.LIMITS else fault.kind
    message = "; ".join([*fault.sentence.split("\n"), *([fault.found] if fault.found else [])])
    places = {cell.name: cell.at for cell in report.cells}
    return result(_RULES, kind, (fault.name, fault.stage), message) | {
        "locations": [
            {"physicalLocation": _place(report, fault.at), "logicalLocations": nodes},
        ],
        "relatedLocations": [
            {
                "id": count,
                "physicalLocation": _place(report, places[other]),
                "message": {"text": f"{phrases.text(other)} is not made because of it"},
            }
            for count, other in enumerate(fault.others, 1)
        ],
        "properties": {"stage": phrases.text(fault.stage), "exitCode": fault.exit_code},
    }


def _place(report: PipelineReport, at: PlaceRecord | None) -> Json:
    file, line = (at.file, at.line) if at is not None else (report.file, 1)
    return {
        "artifactLocation": artifact_location(in_checkout(Path(file)), root()),
        "region": {"startLine": line},
    }
