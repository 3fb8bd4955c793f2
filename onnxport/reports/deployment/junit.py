"""The JUnit XML of a deployment: a case per runtime, which fails where `--error-on-fallback` fails for it."""

from __future__ import annotations

from xml.etree import ElementTree as xml

from onnxport.deployment.report import DeploymentReport, Placement
from onnxport.reports import phrases
from onnxport.reports.deployment import figures
from onnxport.reports.junit import document, suite


def view(report: DeploymentReport) -> str:
    cases = [_case(report, each) for each in report.placements]
    properties = (("model", report.model), ("format", report.format), ("command", figures.command(report)))
    return document("onnxport inspect --runs-on", 0.0, [suite(report.model, 0.0, properties, cases)])


def _case(report: DeploymentReport, placement: Placement) -> xml.Element:
    case = xml.Element("testcase", classname="runs-on", name=phrases.text(placement.runtime))
    lines = "\n".join(figures.details(placement))
    if figures.fails(report, placement):
        message = f"{phrases.text(placement.title)} takes {figures.extent_text(placement)}"
        xml.SubElement(case, "failure", type=placement.extent, message=message).text = lines
    elif placement.extent == "unknown":
        message = phrases.text(placement.why) or "unknown"
        xml.SubElement(case, "skipped", type="unknown", message=message)
    output = (f"takes: {figures.extent_text(placement)}", f"source: {figures.origin(placement)}", lines)
    xml.SubElement(case, "system-out").text = "\n".join(filter(None, output))
    return case
