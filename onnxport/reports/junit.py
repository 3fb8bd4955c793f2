"""The report as JUnit XML: a suite per artefact, a case per output and judgement.

Keeps to what Jenkins' own schema allows, which knows properties of a suite only: a case has its figures as its output.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from xml.etree import ElementTree as xml

from onnxport.core.errors import OnnxportError
from onnxport.reports import wording
from onnxport.reports.run_report import ArtifactRecord, RunReport
from onnxport.validate.report import LEAVES, RIGHT, Figure, Judgement, OutputReport, Report, Verdict


def view(report: RunReport) -> str:
    suites = [_suite(artifact, report) for artifact in report.artifacts]
    return document(f"onnxport {report.command}", report.seconds, suites)


def document(name: str, seconds: float, suites: Sequence[xml.Element]) -> str:
    """The document of `suites`, with their numbers added up."""
    root = xml.Element("testsuites", name=wording.text(name), time=f"{seconds:.3f}")
    root.extend(suites)
    for kind in ("tests", "failures", "errors"):
        root.set(kind, str(sum(int(suite.attrib[kind]) for suite in suites)))
    return _written(root)


def suite(
    name: str, seconds: float, properties: Iterable[tuple[str, object]], cases: Sequence[xml.Element]
) -> xml.Element:
    """A suite with its properties and cases, which it counts."""
    counts = {
        kind: str(sum(case.find(found) is not None for case in cases))
        for kind, found in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    }
    made = xml.Element(
        "testsuite",
        {"name": wording.text(name), "tests": str(len(cases)), **counts, "time": f"{seconds:.3f}"},
    )
    listed = xml.SubElement(made, "properties")
    for key, value in properties:
        xml.SubElement(listed, "property", name=wording.text(key), value=wording.text(value))
    made.extend(cases)
    return made


def failure(error: OnnxportError, command: str) -> str:
    """The document of a run that ended before there was a verdict: one case, which is an error."""
    name = f"onnxport {command}".rstrip()
    counts = {"tests": "1", "failures": "0", "errors": "1"}
    root = xml.Element("testsuites", {"name": name, **counts})
    suite = xml.SubElement(root, "testsuite", {"name": name, **counts, "skipped": "0"})
    case = xml.SubElement(suite, "testcase", classname=name.replace(" ", "."), name="run")
    found = xml.SubElement(case, "error", type=type(error).__name__, message=wording.text(error.what))
    found.text = "\n".join(wording.text(line) for line in f"{error}\nexit {error.exit_code}".splitlines())
    return _written(root)


def _written(root: xml.Element) -> str:
    xml.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{xml.tostring(root, encoding="unicode")}\n'


def _suite(artifact: ArtifactRecord, run: RunReport) -> xml.Element:
    report = artifact.report
    return suite(
        artifact.label, report.seconds or run.seconds, _properties(artifact, run), list(_cases(report))
    )


def _properties(artifact: ArtifactRecord, run: RunReport) -> Iterator[tuple[str, object]]:
    report = artifact.report
    yield "verdict", report.verdict
    yield "reason", report.reason
    yield "reference", report.reference.path
    yield "run by", report.candidate.runtime
    yield "bytes", artifact.size
    yield "input sets", len(report.fed)
    if artifact.worth is not None and artifact.worth.latency is not None:
        yield "speed", wording.speed(artifact.worth.latency)
    for judgement in report.judgements:
        for figure in judgement.metrics:
            yield f"{judgement.question} {wording.text(figure.metric)}", wording.measured(figure)
    if run.arguments:
        yield "command", shlex.join(("onnxport", run.command, *run.arguments))
    yield from run.environment.items()


def _cases(report: Report) -> Iterator[xml.Element]:
    """Every case; one of them fails exactly if the artefact does."""
    for judgement in report.judgements:
        cases = [_output_case(report, judgement, output) for output in judgement.outputs]
        cases += [_metric_case(report, judgement, each) for each in judgement.metrics if each.met is not None]
        if not cases or (_fails(report, judgement.verdict) and all(c.find("failure") is None for c in cases)):
            cases.append(_case(report, judgement.question, "verdict", judgement.verdict, judgement.reason))
        yield from cases
    if not report.judgements:
        yield _case(report, "validation", "verdict", report.verdict, report.reason)


def _output_case(report: Report, judgement: Judgement, output: OutputReport) -> xml.Element:
    case = _case(report, judgement.question, output.name, output.verdict, output.rule)
    lines = (f"{label}: {text}" for label, text in wording.figures(output, judgement.question))
    xml.SubElement(case, "system-out").text = "\n".join(lines)
    return case


def _metric_case(report: Report, judgement: Judgement, figure: Figure) -> xml.Element:
    reason = f"{wording.measured(figure)}, {wording.budget(figure)}"
    return _case(
        report, judgement.question, figure.metric, "measured" if figure.met else "over budget", reason
    )


def _case(report: Report, question: str, name: str, verdict: Verdict, reason: str) -> xml.Element:
    # Readers split the class name at its dots: the artefact becomes the package, the question the class.
    artefact = PurePath(report.candidate.path).name
    case = xml.Element("testcase", classname=wording.text(f"{artefact}.{question}"), name=wording.text(name))
    if _fails(report, verdict):
        failure = xml.SubElement(case, "failure", type=verdict, message=wording.text(f"{verdict}: {reason}"))
        failure.text = "\n".join(_told(report))
    elif verdict not in RIGHT:
        xml.SubElement(case, "skipped", type=verdict, message=wording.text(f"{verdict}: {reason}"))
    return case


def _told(report: Report) -> Iterator[str]:
    """The whole run's failure, and where `debug` found it."""
    yield wording.text(f"{wording.summary(report)}: {report.reason}")
    found = report.diagnosis
    if found is not None:
        yield wording.text(found.summary)
        if found.node is not None:
            yield wording.text(f"node: {wording.node(found.node)}, stage {found.node.stage}")
        if found.repro is not None:
            yield wording.text(f"to reproduce it alone: {found.repro}")


def _fails(report: Report, verdict: Verdict) -> bool:
    """Whether a case fails: never where the artefact passes, so that the cases and the exit code agree."""
    return not report.passed and verdict not in LEAVES
