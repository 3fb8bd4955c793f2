"""The report of a profile as one HTML page: the run from left to right, the hottest nodes, and groups of them."""

from __future__ import annotations

from onnxport.profiling.report import Group, ProfileReport
from onnxport.reports import wording
from onnxport.reports.html import page
from onnxport.reports.profile import figures, flame

LENGTH = 1000  # of a strip, in units of its drawing
_GROUPS = 25
_NODES = 3000  # beyond which nobody scrolls; the JSON report has all


def view(report: ProfileReport) -> str:
    shown, rest = wording.cut(report.nodes, _NODES)
    return page(
        "profile/report.html.j2",
        ("report.css", "drawing.css", "profile/report.css"),
        run=report,
        f=figures,
        flame=flame,
        flames=flame.flames(report),
        colours=flame.colours(report),
        groups={title: wording.cut(each, _GROUPS) for title, each in _groups(report).items() if each},
        nodes=shown,
        rest=rest,
        length=LENGTH,
    )


def _groups(report: ProfileReport) -> dict[str, tuple[Group, ...]]:
    return {
        "By operator": report.by_op,
        "By ONNX node": report.by_source,
        "By who ran it": tuple(figures.by_provider(report)),
    }
