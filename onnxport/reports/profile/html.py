"""The HTML page of a profile: a flame chart, the hottest nodes, and groups of nodes."""

from __future__ import annotations

from onnxport.profiling.report import ProfileReport
from onnxport.reports import phrases
from onnxport.reports.page import render
from onnxport.reports.profile import figures, flame

_LENGTH = 1000  # of a strip, in units of its drawing
_GROUPS = 25
_NODES = 3000  # the JSON report has all


def view(report: ProfileReport) -> str:
    shown, rest = phrases.cut(report.nodes, _NODES)
    return render(
        "profile/report.html.j2",
        ("charts.css", "profile/report.css"),
        run=report,
        f=figures,
        flame=flame,
        chart=flame.draw(report),
        colours=flame.colours(report),
        groups={title: phrases.cut(each, _GROUPS) for title, each in figures.groups(report).items()},
        nodes=shown,
        rest=rest,
        length=_LENGTH,
    )
