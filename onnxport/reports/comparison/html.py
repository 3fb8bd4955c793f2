"""The HTML page of a comparison: what differs in the files, then what they compute."""

from __future__ import annotations

from onnxport.reports import phrases
from onnxport.reports.comparison import terminal
from onnxport.reports.comparison.report import DifferenceReport
from onnxport.reports.page import render
from onnxport.reports.run.terminal import diagnosis_lines, result_lines

_SHOWN = 400  # rows of a table


def view(report: DifferenceReport) -> str:
    found, run = report.graph, report.run
    changes = [change for change in found.changes if change.kind != "stored"]
    became, more_became = phrases.cut(found.became, _SHOWN)
    shown, more_changes = phrases.cut(changes, _SHOWN)
    computed = [] if run is None else result_lines(run, detailed=True).splitlines()
    if run is not None and run.artifacts[0].report.diagnosis is not None:
        computed += diagnosis_lines(run, all_layers=False).splitlines()
    return render(
        "comparison/report.html.j2",
        ("comparison/report.css",),
        found=found,
        run=run,
        t=terminal,
        became=became,
        more_became=more_became,
        changes=shown,
        more_changes=more_changes,
        stored=list(terminal.stored(found)),
        computed=computed,
    )
