"""The JUnit XML of a bench: a suite of one case per row.

A row that is slower than its limit fails, one that could not be measured is an error, and one that needs what this
machine lacks is skipped unless the command fails for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree as xml

from onnxport.bench.report import BenchReport, Row
from onnxport.core.errors import PROVEN
from onnxport.reports import wording
from onnxport.reports.bench import figures
from onnxport.reports.bench.figures import Bench
from onnxport.reports.junit import document, suite


def view(report: BenchReport) -> str:
    bench = Bench(report)
    cases = [_case(bench, row) for row in report.rows]
    return document("onnxport bench", 0.0, [suite("bench", 0.0, _properties(report), cases)])


def _properties(report: BenchReport) -> Iterator[tuple[str, object]]:
    yield "command", report.command
    yield from figures.machine(report)
    yield from report.versions.items()


def _case(bench: Bench, row: Row) -> xml.Element:
    # Readers split the class name at its dots.
    classname = f"bench.{bench.name(row).replace('.', '_')}"
    name = ", ".join(figures.setting_texts(row.settings))
    case = xml.Element("testcase", classname=classname, name=wording.text(name))
    message = f"{row.status}: {wording.text(' '.join(row.why.split()))}"
    if row.exit_code != PROVEN:
        error = xml.SubElement(case, "error", type=row.status, message=message)
        error.text = f"exit {row.exit_code}"
    elif figures.fails(row) and row.against is not None:
        standing = f"{bench.label(row)}: {figures.standing(row)}"
        failed = xml.SubElement(case, "failure", type=row.against.standing, message=standing)
        failed.text = wording.text(row.against.said) or standing
    elif row.status != "measured":
        xml.SubElement(case, "skipped", type=row.status, message=message)
    xml.SubElement(case, "system-out").text = "\n".join(_figures(row))
    return case


def _figures(row: Row) -> Iterator[str]:
    yield f"artefact: {wording.text(row.artifact)}"
    for name, figure in figures.COLUMNS.items():
        if value := figure(row):
            yield f"{name}: {value}"
    if row.against is not None:
        yield f"against the baseline: {figures.standing(row)}"
