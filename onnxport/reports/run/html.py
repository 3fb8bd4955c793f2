"""The HTML page of a run: verdict, figures of every output, inputs, and the node at fault."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from onnxport.reports import phrases
from onnxport.reports.page import render
from onnxport.reports.run import charts, facts
from onnxport.reports.run_report import RunReport
from onnxport.validate.report import Diagnosis, LayerFigure

# Most things of a kind on a page; a count says how many more there are, and the JSON report has them.
CAPS: Mapping[str, int] = {"outputs": 100, "fed": 30, "layers": 60, "worst": 16}


def view(report: RunReport) -> str:
    return render(
        "run/report.html.j2",
        (),
        run=report,
        verdict=phrases.worst_verdict(report),
        command=phrases.command_line(report.command, report.arguments),
        **details_values(CAPS),
    )


def details_values(caps: Mapping[str, int]) -> dict[str, Any]:
    """Return the values that run/details.html.j2 needs."""
    return {"caps": caps, "run_charts": charts, "facts": facts, "layers_to_show": _layers_to_show}


def _layers_to_show(found: Diagnosis) -> tuple[list[tuple[LayerFigure, bool]], int]:
    """Return a diagnosis' values in the graph's order, each with whether it is at fault, and how many are left out.

    Where there are too many, those at fault and those with the lowest SQNR stay.
    """
    at_fault = {ref.value for ref in (*found.candidates, found.node) if ref is not None}
    rows = [(layer, layer.node.value in at_fault or charts.is_at_fault(layer)) for layer in found.layers]
    sqnrs = [
        math.inf if each.sqnr_db is None or math.isnan(each.sqnr_db) else each.sqnr_db
        for each in found.layers
    ]
    by_interest = sorted(range(len(rows)), key=lambda i: (not rows[i][1], sqnrs[i]))
    shown, rest = phrases.cut(by_interest, CAPS["layers"])
    return [rows[i] for i in sorted(shown)], rest
