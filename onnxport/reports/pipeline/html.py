"""The report of a pipeline's run as one HTML page: the matrix first, the judge's page of every node below it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from onnxport.reports import charts, tradeoff
from onnxport.reports.html import CAPS, page
from onnxport.reports.pipeline import matrix
from onnxport.reports.pipeline.choices import choices
from onnxport.reports.pipeline.matrix import Row
from onnxport.reports.pipeline.plot import plot
from onnxport.reports.pipeline_report import NodeRecord, PipelineReport

_COLUMNS = 6  # of a matrix that is read at a glance
_OUTPUTS = 400  # on the whole page
_FEWEST = 4


def view(report: PipelineReport) -> str:
    rows = matrix.rows(report)
    plots = {name: plot(rows, name) for name in charts.WIDTHS}
    return page(
        "pipeline/report.html.j2",
        ("report.css", "drawing.css", "pipeline/report.css"),
        run=report,
        rows=rows,
        grid=_Grid(rows),
        plots={name: found for name, found in plots.items() if found is not None},
        tradeoffs=tradeoff.plots(choices(rows)),
        enough=tradeoff.ENOUGH,
        untimed=sum(row.made is not None and row.latency is None for row in rows),
        faults=matrix.faults(report),
        verdict=matrix.verdict(report),
        environment=matrix.environment(report),
        delivered=sum(row.cell.path is not None for row in rows),
        bars=[_bar(node) for node in report.nodes],
        m=matrix,
        command=shlex.join(("onnxport", report.command, *report.arguments)) if report.arguments else "",
        caps=_caps(report),
    )


def _caps(report: PipelineReport) -> Mapping[str, int]:
    """A page of many nodes shows less of each."""
    judged = sum(node.run is not None for node in report.nodes)
    outputs = max(_FEWEST, min(CAPS["outputs"], _OUTPUTS // max(judged, 1)))
    return {**CAPS, "outputs": outputs}


class _Grid:
    """Rows and columns of the matrix, the shorter side across, and the cell at each crossing if there is one."""

    def __init__(self, rows: Sequence[Row]) -> None:
        models = list(dict.fromkeys(row.cell.model for row in rows))
        targets = list(dict.fromkeys(row.label for row in rows))
        self.models_down = len(models) > len(targets)
        self.down, self.across = (models, targets) if self.models_down else (targets, models)
        self.corner = "model" if self.models_down else "target"
        self._cells = {(row.cell.model, row.label): row for row in rows}
        self.crowded = len(self.across) > _COLUMNS

    def at(self, down: str, across: str) -> Row | None:
        return self._cells.get((down, across) if self.models_down else (across, down))


def _bar(node: NodeRecord) -> charts.Bar:
    """A node's time in this run; of one from the cache, what it took when it was made."""
    if node.status == "cached" and node.run is not None:
        return charts.Bar(node.name, node.run.seconds, "from the cache; when it was made", idle=True)
    remark = "" if node.status == "made" else node.status
    return charts.Bar(node.name, node.seconds, remark, idle=node.status == "not run")
