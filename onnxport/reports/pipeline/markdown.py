"""The report of a pipeline's run as Markdown: a table that fits a job's summary, the details folded below it."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from onnxport.reports import wording
from onnxport.reports.markdown import ending, escaped, failure, judged, table
from onnxport.reports.pipeline import matrix
from onnxport.reports.pipeline.matrix import Fault, Row
from onnxport.reports.pipeline_report import NodeRecord, PipelineReport

__all__ = ["failure", "view"]

_ROWS = 100
_DETAILS = 12  # nodes that are unfolded; a summary that is longer than a megabyte is dropped by GitHub
_HEAD = ("", "artefact", "verdict", "size", "accuracy", "speed", "origin")
_MOST = 900_000  # bytes


def view(report: PipelineReport) -> str:
    shown, rest = wording.cut(matrix.rows(report), _ROWS)
    mark = "✓" if report.passed else "✗"
    parts = [f"## {mark} {escaped(report.file)}: {escaped(matrix.totals(report))}", _matrix(shown)]
    if rest:
        parts.append(f"… and {wording.count(rest, 'more artefact')}")
    parts += _failures(matrix.faults(report))
    end = [
        *_times(report),
        *ending(report.command, report.arguments, matrix.environment(report), report.seconds),
    ]
    left = _MOST - sum(len(part.encode()) + 2 for part in (*parts, *end))
    return "\n\n".join((*parts, *_details(report, left), *end)) + "\n"


def _matrix(rows: Sequence[Row]) -> str:
    """The table, without the columns that nobody has anything in."""
    cells = [_cells(row) for row in rows]
    kept = [i for i, name in enumerate(_HEAD) if not name or any(row[i] for row in cells)]
    return table([_HEAD[i] for i in kept], [[row[i] for i in kept] for row in cells])


def _cells(row: Row) -> Sequence[str]:
    return (
        wording.MARKS[row.cell.verdict],
        escaped(row.cell.name),
        escaped(row.cell.verdict),
        row.size,
        escaped(row.accuracy),
        escaped(wording.speed(row.latency)) if row.latency is not None else "",
        row.origin,
    )


def _failures(found: Sequence[Fault]) -> Iterator[str]:
    if not found:
        return
    yield "### Failures"
    lines = []
    for fault in found:
        place = f", {fault.at}" if fault.at is not None else ""
        node = f", ONNX node {fault.onnx_node}" if fault.onnx_node else ""
        sentence = " ".join(fault.sentence.split("\n"))
        lines.append(
            f"- **{escaped(fault.name)}**: {escaped(sentence)} (stage {escaped(fault.stage + node + place)})"
        )
        if fault.found:
            lines.append(f"  - {escaped(fault.found)}")
        if fault.others:
            lines.append(f"  - not made for it: {escaped(', '.join(fault.others))}")
    yield "\n".join(lines)


def _times(report: PipelineReport) -> Iterator[str]:
    rows = [
        (escaped(node.name), escaped(node.stage), matrix.origin(node), f"{node.seconds:.1f} s")
        for node in report.nodes
    ]
    yield from _folded("Stages", table(("node", "stage", "origin", "time"), rows[:_ROWS]))


def _details(report: PipelineReport, most: int) -> Iterator[str]:
    """The judge's page of each node, folded, those that failed first; as many as `most` bytes hold."""
    judgeable = [node for node in report.nodes if node.run is not None]
    judgeable.sort(key=lambda node: not matrix.failed(node))
    shown, rest = wording.cut(judgeable, _DETAILS)
    for node in shown:
        whole = "\n\n".join(_folded(f"{node.name}: {matrix.verdict_of(node)}", _judged(node)))
        most -= len(whole.encode())
        if most < 0:
            rest += 1
        else:
            yield whole
    if rest:
        yield f"… and {wording.count(rest, 'more node')}, which the HTML report has"


def _judged(node: NodeRecord) -> str:
    run = matrix.run_of(node)
    assert run is not None, "asked of those with one"
    parts = []
    for artifact in run.artifacts:
        parts.append(f"**{escaped(wording.summary(artifact.report))}**: {escaped(artifact.report.reason)}")
        parts += judged(artifact)
    return "\n\n".join(parts)


def _folded(title: str, body: str) -> Iterator[str]:
    """Blank lines around the body: without them it would be HTML and no Markdown."""
    yield f"<details><summary>{html.escape(wording.text(title))}</summary>"
    yield body
    yield "</details>"
