"""The parts of JUnit XML reports that all subjects share.

They keep to Jenkins' own schema, in which only a suite has properties: a case has its figures as its output.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree import ElementTree as xml

from onnxport.core.errors import OnnxportError
from onnxport.reports import phrases


def document(name: str, seconds: float, suites: Sequence[xml.Element]) -> str:
    """Return the document of `suites`, with their counts added up."""
    root = xml.Element("testsuites", name=phrases.text(name), time=f"{seconds:.3f}")
    root.extend(suites)
    for kind in ("tests", "failures", "errors"):
        root.set(kind, str(sum(int(suite.attrib[kind]) for suite in suites)))
    return _serialize(root)


def suite(
    name: str, seconds: float, properties: Iterable[tuple[str, object]], cases: Sequence[xml.Element]
) -> xml.Element:
    """Return a suite with its properties, its cases and their counts."""
    counts = {
        kind: str(sum(case.find(tag) is not None for case in cases))
        for kind, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    }
    attributes = {"name": phrases.text(name), "tests": str(len(cases)), **counts, "time": f"{seconds:.3f}"}
    element = xml.Element("testsuite", attributes)
    listed = xml.SubElement(element, "properties")
    for key, value in properties:
        xml.SubElement(listed, "property", name=phrases.text(key), value=phrases.text(value))
    element.extend(cases)
    return element


def failure(error: OnnxportError, command: str) -> str:
    """Return the document of a run that ended before there was a verdict: one case, which is an error."""
    name = f"onnxport {command}".rstrip()
    counts = {"tests": "1", "failures": "0", "errors": "1"}
    root = xml.Element("testsuites", {"name": name, **counts})
    suite = xml.SubElement(root, "testsuite", {"name": name, **counts, "skipped": "0"})
    case = xml.SubElement(suite, "testcase", classname=name.replace(" ", "."), name="run")
    found = xml.SubElement(case, "error", type=type(error).__name__, message=phrases.text(error.what))
    found.text = "\n".join(phrases.text(line) for line in f"{error}\nexit {error.exit_code}".splitlines())
    return _serialize(root)


def _serialize(root: xml.Element) -> str:
    xml.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{xml.tostring(root, encoding="unicode")}\n'
