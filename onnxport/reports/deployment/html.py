"""Where a model runs as one HTML page: a row per runtime, then what keeps it from which of them."""

from __future__ import annotations

from onnxport.deployment.report import DeploymentReport
from onnxport.reports import wording
from onnxport.reports.deployment import figures
from onnxport.reports.html import page

_OPERATORS = 25
_KINDS = 40  # of fallback, of one runtime


def view(report: DeploymentReport) -> str:
    operators, rest = wording.cut(figures.operators(report), _OPERATORS)
    return page(
        "deployment/report.html.j2",
        ("report.css", "drawing.css", "deployment/report.css"),
        run=report,
        f=figures,
        operators=operators,
        rest=rest,
        kinds_shown=_KINDS,
    )
