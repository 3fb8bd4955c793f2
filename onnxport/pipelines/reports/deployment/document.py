"""The report as a JSON document."""

from __future__ import annotations

from onnxport.deployment.record import DeploymentReport


def view(report: DeploymentReport) -> str:
    return report.model_dump_json(indent=2) + "\n"
