"""The JUnit XML of a bench: a suite of one case per row.

A row that is slower than its baseline allows, or beyond a limit, fails; one that could not be measured is an error,
and one that needs what this machine lacks is skipped unless the command fails for it.
"""

from __future__ import annotations

from xml.etree import ElementTree as xml

from onnxport.bench.report import BenchReport, Row
from onnxport.core.errors import PROVEN
from onnxport.reports import phrases
from onnxport.reports.bench import figures
from onnxport.reports.bench.figures import Bench
from onnxport.reports.junit import document, suite


def view(report: BenchReport) -> str:
    bench = Bench(report)
    cases = [_case(bench, row) for row in report.rows]
    properties = (("command", report.command), *figures.machine(report), *report.versions.items())
    return document("onnxport bench", 0.0, [suite("bench", 0.0, properties, cases)])


def _case(bench: Bench, row: Row) -> xml.Element:
    # Readers split the class name at its dots.
    classname = f"bench.{bench.name(row).replace('.', '_')}"
    name = ", ".join(figures.setting_texts(row.settings))
    case = xml.Element("testcase", classname=classname, name=phrases.text(name))
    message = f"{row.status}: {phrases.text(' '.join(row.why.split()))}"
    if row.exit_code != PROVEN:
        error = xml.SubElement(case, "error", type=row.status, message=message)
        error.text = f"exit {row.exit_code}"
    elif figures.fails(row):
        slow = figures.slowness(row)
        said = f"{bench.label(row)}: {'; '.join(map(phrases.text, filter(None, (slow, *row.over))))}"
        failed = xml.SubElement(case, "failure", type="slower" if slow else "over budget", message=said)
        failed.text = said
    elif row.status != "measured":
        xml.SubElement(case, "skipped", type=row.status, message=message)
    texts = {name: figure(row) for name, figure in figures.COLUMNS.items()}
    texts = {"artefact": phrases.text(row.artifact), **texts, "against the baseline": figures.standing(row)}
    xml.SubElement(case, "system-out").text = "\n".join(
        f"{name}: {text}" for name, text in texts.items() if text
    )
    return case
