"""A pipeline's run as lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from onnxport.reports import terminal, wording
from onnxport.reports.pipeline import matrix
from onnxport.reports.pipeline.matrix import Fault, Row
from onnxport.reports.pipeline_report import NodeRecord, PipelineReport

_GAP = "   "
_FEW = 3  # nodes whose figures are shown unasked, names in a row


def result_lines(report: PipelineReport, *, detailed: bool = False, figures: bool = True) -> str:
    """A line per cell and one of totals, and with `figures` those of what failed the proof, of a few nodes.

    With `detailed` a line per node follows, and the figures of all.
    """
    lines = [*_aligned([_cells(row) for row in matrix.rows(report)]), matrix.totals(report)]
    if detailed:
        lines += ["", figure_lines(report)]
    elif figures:
        lines += map(_figures, [node for node in report.nodes if matrix.failed(node) and node.run][:_FEW])
    return "\n".join(lines)


def figure_lines(report: PipelineReport) -> str:
    """A line per node, then the figures of every output of each."""
    judged = (node for node in report.nodes if node.run is not None)
    return "\n".join((*map(_node_line, report.nodes), *map(_figures, judged)))


def fault_lines(fault: Fault) -> str:
    """What failed and why, then where: the stage, the ONNX node, the line of the file, what is not there for it."""
    where = (
        f"stage {wording.text(fault.stage)}",
        fault.onnx_node and f"ONNX node {fault.onnx_node}",
        wording.text(fault.at) if fault.at is not None else "",
    )
    # The sentence may be a list: refusals come one a line.
    lines = [*matrix.lines(fault.sentence), f"  {', '.join(part for part in where if part)}"]
    if fault.found:
        lines.append(f"  {fault.found}")
    if fault.others:
        lines.append(f"  not made for it: {_listed(fault.others)}")
    return "\n".join(lines)


def notes(report: PipelineReport) -> list[str]:
    """A line per note with the nodes that it is about."""
    about: dict[str, list[str]] = {}
    for node in report.nodes:
        run = matrix.run_of(node)
        for note in terminal.notes(run) if run is not None else ():
            about.setdefault(note, []).append(node.name)
    return [f"{note} ({_listed(names)})" for note, names in about.items()]


def _cells(row: Row) -> tuple[str, ...]:
    return (
        wording.text(row.cell.name),
        row.size,
        row.cell.verdict,
        row.worst,
        row.accuracy,
        wording.speed(row.latency) if row.latency is not None else "",
        row.origin,
    )


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """The first three columns in a row under each other; what follows is there or not."""
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
    said = (
        wording.text(node.name),
        f"stage {wording.text(node.stage)}",
        matrix.origin(node),
        f"{node.seconds:.1f} s" if node.seconds else "",
        wording.text(node.why),
        f"key {node.key[:12]}" if node.key else "",
    )
    return _GAP.join(part for part in said if part)


def _figures(node: NodeRecord) -> str:
    run = matrix.run_of(node)
    assert run is not None, "asked of those with one"
    return f"\n{terminal.result_lines(run, detailed=True)}"


def _listed(names: Sequence[str]) -> str:
    shown, rest = wording.cut(names, _FEW)
    return ", ".join(map(wording.text, shown)) + (f" and {rest:,} more" if rest else "")
