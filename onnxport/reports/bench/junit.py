"""The report of a bench as JUnit XML: a suite of one case per row.

A row that is slower than its baseline allows fails, one that was to be measured and could not be is an error, and one
of something that this machine lacks is skipped unless the command fails for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree as xml

from onnxport.bench.report import BenchReport, Row
from onnxport.core.errors import PROVEN
from onnxport.reports import wording
from onnxport.reports.bench import figures
from onnxport.reports.bench.figures import Bench
from onnxport.reports.junit import document, failure, suite

__all__ = ["failure", "view"]


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
    name = ", ".join(figures.settings_of(row.settings))
    case = xml.Element(
        "testcase", classname=f"bench.{bench.name(row).replace('.', '_')}", name=wording.text(name)
    )
    said = wording.text(" ".join(row.why.split()))
    if row.exit_code != PROVEN:
        xml.SubElement(
            case, "error", type=row.status, message=f"{row.status}: {said}"
        ).text = f"exit {row.exit_code}"
    elif figures.fails(row) and row.against is not None:
        told = f"{bench.label(row)}: {figures.standing(row)}"
        found = xml.SubElement(case, "failure", type=row.against.standing, message=told)
        found.text = wording.text(row.against.said) or told
    elif row.status != "measured":
        xml.SubElement(case, "skipped", type=row.status, message=f"{row.status}: {said}")
    xml.SubElement(case, "system-out").text = "\n".join(_told(row))
    return case


def _told(row: Row) -> Iterator[str]:
    yield f"artefact: {wording.text(row.artifact)}"
    for name, told in figures.COLUMNS.items():
        if said := told(row):
            yield f"{name}: {said}"
    if row.against is not None:
        yield f"beside the baseline: {figures.standing(row)}"
