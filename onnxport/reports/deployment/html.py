"""The HTML page of a deployment: a row per runtime, then the fallbacks of each."""

from __future__ import annotations

from onnxport.deployment.report import DeploymentReport
from onnxport.reports import phrases
from onnxport.reports.deployment import figures
from onnxport.reports.page import render

_OPERATORS = 25
_KINDS = 40  # of fallback, for one runtime


def view(report: DeploymentReport) -> str:
    operators, rest = phrases.cut(figures.operators(report), _OPERATORS)
    return render(
        "deployment/report.html.j2",
        ("charts.css", "deployment/report.css"),
        run=report,
        f=figures,
        operators=operators,
        rest=rest,
        kinds_shown=_KINDS,
    )
