"""A pipeline's run as lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from onnxport.reports import phrases
from onnxport.reports.pipeline import matrix
from onnxport.reports.pipeline.matrix import Fault, Row
from onnxport.reports.pipeline_report import NodeRecord, PipelineReport
from onnxport.reports.run import terminal

_GAP = "   "
_ROWS = 100  # those that failed first, where there are more
_FEW = 3  # failed nodes whose figures are shown


def result_lines(report: PipelineReport, *, detailed: bool = False, figures: bool = True) -> str:
    """Return a line per cell, at most 100, and one of totals.

    `figures` adds the figures of a few nodes that failed their proof. `detailed` lists all cells and adds a line per
    node and the figures of all instead.
    """
    rows = matrix.rows(report)
    shown, rest = (rows, 0) if detailed else phrases.cut(matrix.worst_first(rows), _ROWS)
    lines = _align([_cells(row) for row in (shown if rest else rows)])
    if rest:
        lines.append(
            f"... and {phrases.count(rest, 'more artefact')}; --verbose lists all, --report DIR has each"
        )
    lines.append(matrix.totals(report))
    if detailed:
        lines += ["", figure_lines(report)]
    elif figures:
        lines += map(
            _figure_table, [node for node in report.nodes if matrix.is_failed(node) and node.run][:_FEW]
        )
    return "\n".join(lines)


def figure_lines(report: PipelineReport) -> str:
    """Return a line per node, then the figures of all their outputs."""
    judged = (node for node in report.nodes if node.run is not None)
    return "\n".join((*map(_node_line, report.nodes), *map(_figure_table, judged)))


def fault_lines(fault: Fault) -> str:
    """Return what failed and why, then the stage, the ONNX node, the line of the file and the missing cells."""
    where = (
        f"stage {phrases.text(fault.stage)}",
        fault.onnx_node and f"ONNX node {fault.onnx_node}",
        phrases.text(fault.at) if fault.at is not None else "",
    )
    # Refusals of several nodes are a list, one a line.
    lines = [*matrix.lines(fault.sentence), f"  {', '.join(part for part in where if part)}"]
    if fault.found:
        lines.append(f"  {fault.found}")
    if fault.others:
        lines.append(f"  not made because of it: {phrases.name_list(fault.others)}")
    return "\n".join(lines)


def notes(report: PipelineReport) -> list[str]:
    """Return a line per note with the nodes that it is about."""
    about: dict[str, list[str]] = {}
    for node in report.nodes:
        run = matrix.run_of(node)
        for note in terminal.notes(run) if run is not None else ():
            about.setdefault(note, []).append(node.name)
    of_nodes = [f"{note} ({phrases.name_list(names)})" for note, names in about.items()]
    return [*of_nodes, *(f"note: {phrases.text(note)}" for note in report.notes)]


def _cells(row: Row) -> tuple[str, ...]:
    return (
        phrases.text(row.cell.name),
        row.size,
        row.cell.verdict,
        row.worst,
        row.accuracy,
        row.speed,
        row.origin,
    )


def _align(lines: Sequence[Sequence[str]]) -> list[str]:
    """Align the first three columns; the others may be empty and are left out then."""
    widths = [max(map(len, column)) for column in list(zip(*lines, strict=True))[:3]]
    return [
        _GAP.join(
            [
                *(cell.ljust(width) for cell, width in zip(line, widths, strict=False)),
                *filter(None, line[len(widths) :]),
            ]
        ).rstrip()
        for line in lines
    ]


def _node_line(node: NodeRecord) -> str:
    parts = (
        phrases.text(node.name),
        f"stage {phrases.text(node.stage)}",
        matrix.origin(node),
        f"{node.seconds:.1f} s" if node.seconds else "",
        phrases.text(node.why),
        f"key {node.key[:12]}" if node.key else "",
    )
    return _GAP.join(part for part in parts if part)


def _figure_table(node: NodeRecord) -> str:
    run = matrix.run_of(node)
    assert run is not None, "the caller passes nodes with a run"
    return f"\n{terminal.result_lines(run, detailed=True)}"
