"""The HTML page of a pipeline's run: the matrix first, the judge's page of every node below it."""

from __future__ import annotations

from collections.abc import Sequence

from onnxport.reports import phrases, tradeoff
from onnxport.reports.page import render
from onnxport.reports.pipeline import charts, matrix
from onnxport.reports.pipeline.matrix import Row
from onnxport.reports.pipeline_report import NodeRecord, PipelineReport
from onnxport.reports.run.html import CAPS, details_values

_COLUMNS = 6  # of a matrix that fits a page
_OUTPUTS = 400  # on the whole page
_FEWEST = 4
_DETAILED = 200  # nodes whose figures are on the page: a browser takes seconds for the page of a thousand
_FAULTS = 100
_BARS = 40
_SPOTS = 200  # of a chart that tells them apart


def view(report: PipelineReport) -> str:
    rows = matrix.rows(report)
    nodes, left_out = phrases.cut(_failed_first(report.nodes), _DETAILED)
    faults, further_faults = phrases.cut(matrix.faults(report), _FAULTS)
    bars = [charts.stage_bar(node) for node in report.nodes]
    slowest, faster = phrases.cut(sorted(bars, key=lambda bar: -bar.seconds), _BARS)
    judged = sum(node.run is not None for node in nodes)
    most_outputs = max(_FEWEST, min(CAPS["outputs"], _OUTPUTS // max(judged, 1)))  # of each node
    return render(
        "pipeline/report.html.j2",
        ("charts.css", "pipeline/report.css"),
        run=report,
        rows=rows,
        grid=_Grid(matrix.worst_first(rows) if left_out else rows),
        nodes=nodes if left_out else report.nodes,
        left_out=left_out,
        plot=charts.size_against_accuracy(rows) if len(rows) <= _SPOTS else None,
        tradeoff_plot=tradeoff.draw(
            charts.choices(rows) if len(rows) <= _SPOTS else [], "time of a run on this CPU"
        ),
        full_ring=tradeoff.FULL_RING_DB,
        untimed=sum(row.artifact is not None and row.latency is None for row in rows),
        faults=faults,
        further_faults=further_faults,
        verdict=matrix.worst_verdict(report),
        environment=matrix.environment(report),
        delivered=sum(row.cell.path is not None for row in rows),
        bars=slowest if left_out else bars,
        faster=faster if left_out else 0,
        m=matrix,
        command=phrases.command_line(report.command, report.arguments),
        **details_values({**CAPS, "outputs": most_outputs}),
    )


def _failed_first(nodes: Sequence[NodeRecord]) -> list[NodeRecord]:
    return sorted(nodes, key=lambda node: not matrix.is_failed(node))


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
