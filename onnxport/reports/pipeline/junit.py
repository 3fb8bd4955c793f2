"""The JUnit XML of a pipeline's run: a suite per model, a case per cell and per stage that failed.

A cell that is missing because an earlier stage failed is skipped, so that each error counts once. A case has its
figures as its output; they are properties of the suite, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree import ElementTree as xml

from onnxport.reports import phrases
from onnxport.reports.junit import document, suite
from onnxport.reports.pipeline import matrix
from onnxport.reports.pipeline.matrix import Fault, Row
from onnxport.reports.pipeline_report import PipelineReport
from onnxport.validate.report import RIGHT


def view(report: PipelineReport) -> str:
    faults = matrix.faults(report)
    suites = [
        _suite(report, model, rows, [fault for fault in faults if fault.model == model])
        for model, rows in matrix.by_model(matrix.rows(report)).items()
    ]
    return document(f"onnxport {report.command} {report.file}", report.seconds, suites)


def _suite(report: PipelineReport, model: str, rows: Sequence[Row], faults: Sequence[Fault]) -> xml.Element:
    own = {row.node.name for row in rows} | {row.cell.name for row in rows}
    seconds = sum(node.seconds for node in report.nodes if node.model == model)
    cases = []
    for fault in faults:
        if fault.name not in own:
            case = _case(fault.model, fault.name.removeprefix(f"{fault.model}/"), fault.seconds)
            _fail(case, fault)
            cases.append(case)
    cases += [_cell(row, faults) for row in rows]
    return suite(model, seconds, _properties(report, rows), cases)


def _properties(report: PipelineReport, rows: Sequence[Row]) -> Iterator[tuple[str, object]]:
    yield "pipeline", report.file
    for row in rows:
        for label, value in matrix.figures(row):
            yield f"{row.label} {label}", value
    if line := phrases.command_line(report.command, report.arguments):
        yield "command", line
    yield from matrix.environment(report).items()


def _cell(row: Row, faults: Sequence[Fault]) -> xml.Element:
    case = _case(row.cell.model, row.label, row.node.seconds)
    causes = [fault for fault in faults if fault.name in (row.node.name, row.cell.name)]
    if causes:
        for fault in causes:
            _fail(case, fault)
    elif row.failed_node is not None:
        xml.SubElement(case, "skipped", type=row.cell.verdict, message=f"not run: {phrases.text(row.why)}")
    elif row.cell.verdict not in RIGHT:
        reason = f": {phrases.text(row.artifact.report.reason)}" if row.artifact is not None else ""
        xml.SubElement(case, "skipped", type=row.cell.verdict, message=f"{row.cell.verdict}{reason}")
    lines = (f"{label}: {value}" for label, value in matrix.figures(row))
    xml.SubElement(case, "system-out").text = "\n".join(lines)
    return case


def _case(model: str, name: str, seconds: float) -> xml.Element:
    # Readers split the class name at its dots, and a model's name may have some.
    classname = phrases.text(model).replace(".", "_")
    return xml.Element("testcase", classname=classname, name=phrases.text(name), time=f"{seconds:.3f}")


def _fail(case: xml.Element, fault: Fault) -> None:
    """Add an error where nothing was judged, a failure where a proof or a limit failed."""
    sentence = " ".join(matrix.lines(fault.sentence))
    kind = "error" if fault.kind == "failed" else "failure"
    found = xml.SubElement(case, kind, type=fault.kind, message=f"{fault.kind}: {sentence}")
    lines = [*matrix.lines(fault.sentence), f"stage: {phrases.text(fault.stage)}"]
    if fault.found:
        lines.append(fault.found)
    if fault.onnx_node:
        lines.append(f"ONNX node: {fault.onnx_node}")
    found.text = "\n".join((*lines, f"exit {fault.exit_code}"))
