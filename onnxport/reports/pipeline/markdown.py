"""The Markdown summary of a pipeline's run: a table, and the details folded below it."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from onnxport.reports import phrases
from onnxport.reports.markdown import ending, escape, table
from onnxport.reports.pipeline import matrix
from onnxport.reports.pipeline.matrix import Fault, Row
from onnxport.reports.pipeline_report import NodeRecord, PipelineReport
from onnxport.reports.run.markdown import details

_ROWS = 100
_DETAILS = 12  # nodes with details
_HEAD = ("", "artefact", "verdict", "size", "accuracy", "speed", "origin")
_MOST = 900_000  # bytes; GitHub drops a summary above one megabyte


def view(report: PipelineReport) -> str:
    shown, rest = phrases.cut(matrix.rows(report), _ROWS)
    mark = "✓" if report.passed else "✗"
    parts = [f"## {mark} {escape(report.file)}: {escape(matrix.totals(report))}", _matrix(shown)]
    if rest:
        parts.append(f"… and {phrases.count(rest, 'more artefact')}")
    parts += _failures(matrix.faults(report))
    parts += ["\n".join(f"- {escape(note)}" for note in report.notes)] if report.notes else []
    times = [
        (escape(node.name), escape(node.stage), matrix.origin(node), f"{node.seconds:.1f} s")
        for node in report.nodes
    ]
    end = [
        *_fold("Stages", table(("node", "stage", "origin", "time"), times[:_ROWS])),
        *ending(report.command, report.arguments, matrix.environment(report), report.seconds),
    ]
    left = _MOST - sum(len(part.encode()) + 2 for part in (*parts, *end))
    return "\n\n".join((*parts, *_details(report, left), *end)) + "\n"


def _matrix(rows: Sequence[Row]) -> str:
    cells = [_cells(row) for row in rows]
    kept = [i for i, name in enumerate(_HEAD) if not name or any(row[i] for row in cells)]
    return table([_HEAD[i] for i in kept], [[row[i] for i in kept] for row in cells])


def _cells(row: Row) -> Sequence[str]:
    return (
        phrases.MARKS[row.cell.verdict],
        escape(row.cell.name),
        escape(row.cell.verdict),
        row.size,
        escape(row.accuracy),
        escape(row.speed),
        row.origin,
    )


def _failures(faults: Sequence[Fault]) -> Iterator[str]:
    if not faults:
        return
    yield "### Failures"
    lines = []
    for fault in faults:
        place = f", {fault.at}" if fault.at is not None else ""
        node = f", ONNX node {fault.onnx_node}" if fault.onnx_node else ""
        sentence = " ".join(fault.sentence.split("\n"))
        lines.append(
            f"- **{escape(fault.name)}**: {escape(sentence)} (stage {escape(fault.stage + node + place)})"
        )
        if fault.found:
            lines.append(f"  - {escape(fault.found)}")
        if fault.others:
            lines.append(f"  - not made because of it: {escape(', '.join(fault.others))}")
    yield "\n".join(lines)


def _details(report: PipelineReport, most: int) -> Iterator[str]:
    """Yield the details of each node, folded, failed nodes first; as many as `most` bytes hold."""
    with_run = [node for node in report.nodes if node.run is not None]
    with_run.sort(key=lambda node: not matrix.is_failed(node))
    shown, rest = phrases.cut(with_run, _DETAILS)
    for node in shown:
        details = "\n\n".join(_fold(f"{node.name}: {matrix.verdict_of(node)}", _details_of(node)))
        most -= len(details.encode())
        if most < 0:
            rest += 1
        else:
            yield details
    if rest:
        yield f"… and {phrases.count(rest, 'more node')}, which the HTML report has"


def _details_of(node: NodeRecord) -> str:
    run = matrix.run_of(node)
    assert run is not None, "the caller passes nodes with a run"
    parts = []
    for artifact in run.artifacts:
        parts.append(f"**{escape(phrases.summary(artifact.report))}**: {escape(artifact.report.reason)}")
        parts += details(artifact)
    return "\n\n".join(parts)


def _fold(title: str, body: str) -> Iterator[str]:
    """Yield a folded section; without the blank lines around it, the body would be HTML instead of Markdown."""
    yield f"<details><summary>{html.escape(phrases.text(title))}</summary>"
    yield body
    yield "</details>"
