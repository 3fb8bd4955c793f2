"""The report of a pipeline's run as SARIF 2.1.0: a result per failure, at the line of the pipeline that asks for it.

A model has no lines and the file has: code scanning shows a result where a reviewer can change something. What was not
run has no result, its cause has.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onnxport.reports import wording
from onnxport.reports.pipeline import matrix
from onnxport.reports.pipeline.checkout import in_checkout, root
from onnxport.reports.pipeline.matrix import Fault
from onnxport.reports.pipeline_report import PipelineReport, PlaceRecord
from onnxport.reports.sarif import RULES, Json, Rules, log, logical, ruled, uri

_RULES: Rules = {
    **RULES,
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
    kind = "limit" if fault.stage == matrix.LIMITS else fault.kind
    places = {cell.name: cell.at for cell in report.cells}
    return ruled(_RULES, kind, (fault.name, fault.stage), _said(fault)) | {
        "locations": [
            {"physicalLocation": _place(report, fault.at), "logicalLocations": _logical(fault)},
        ],
        "relatedLocations": [
            {
                "id": count,
                "physicalLocation": _place(report, places[name]),
                "message": {"text": f"{wording.text(name)} is not made for it"},
            }
            for count, name in enumerate(fault.others, 1)
        ],
        "properties": {"stage": wording.text(fault.stage), "exitCode": fault.exit_code},
    }


def _said(fault: Fault) -> str:
    return "; ".join([*fault.sentence.split("\n"), *([fault.found] if fault.found else [])])


def _place(report: PipelineReport, at: PlaceRecord | None) -> Json:
    file, line = (at.file, at.line) if at is not None else (report.file, 1)
    return {"artifactLocation": uri(in_checkout(Path(file)), root()), "region": {"startLine": line}}


def _logical(fault: Fault) -> list[Any]:
    """The pipeline's node, then the ONNX node behind it."""
    own = {"name": wording.text(fault.name), "fullyQualifiedName": wording.text(fault.name), "kind": "stage"}
    found = fault.diagnosis.node if fault.diagnosis is not None else None
    return [own, *([logical(found)] if found is not None else [])]
