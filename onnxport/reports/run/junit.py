"""The JUnit XML of a run: a suite per artefact, a case per output and judgement."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from xml.etree import ElementTree as xml

from onnxport.reports import phrases
from onnxport.reports.junit import document, suite
from onnxport.reports.run_report import ArtifactRecord, RunReport
from onnxport.validate.report import LEAVES, RIGHT, Judgement, OutputReport, Report, Verdict


def view(report: RunReport) -> str:
    suites = [
        suite(
            each.label,
            each.report.seconds or report.seconds,
            _properties(each, report),
            [*_cases(each.report)],
        )
        for each in report.artifacts
    ]
    return document(f"onnxport {report.command}", report.seconds, suites)


def _properties(artifact: ArtifactRecord, run: RunReport) -> Iterator[tuple[str, object]]:
    report = artifact.report
    yield "verdict", report.verdict
    yield "reason", report.reason
    yield "reference", report.reference.path
    yield "run by", report.candidate.runtime
    yield "bytes", artifact.size
    yield "input sets", len(report.fed)
    if artifact.worth is not None and artifact.worth.latency is not None:
        yield "speed", phrases.speed(artifact.worth.latency)
    for judgement in report.judgements:
        for figure in judgement.metrics:
            yield f"{judgement.question} {phrases.text(figure.metric)}", phrases.metric_value(figure)
    if line := phrases.command_line(run.command, run.arguments):
        yield "command", line
    yield from run.environment.items()


def _cases(report: Report) -> Iterator[xml.Element]:
    """Yield every case; one of them fails exactly if the artefact does."""
    for judgement in report.judgements:
        cases = [_output_case(report, judgement, output) for output in judgement.outputs]
        for figure in judgement.metrics:
            if figure.met is not None:
                reason = f"{phrases.metric_value(figure)}, {phrases.budget(figure)}"
                verdict: Verdict = "measured" if figure.met else "over budget"
                cases.append(_case(report, judgement.question, figure.metric, verdict, reason))
        if not cases or (_fails(report, judgement.verdict) and all(c.find("failure") is None for c in cases)):
            cases.append(_case(report, judgement.question, "verdict", judgement.verdict, judgement.reason))
        yield from cases
    if not report.judgements:
        yield _case(report, "validation", "verdict", report.verdict, report.reason)


def _output_case(report: Report, judgement: Judgement, output: OutputReport) -> xml.Element:
    case = _case(report, judgement.question, output.name, output.verdict, output.rule)
    lines = (f"{label}: {text}" for label, text in phrases.output_figures(output, judgement.question))
    xml.SubElement(case, "system-out").text = "\n".join(lines)
    return case


def _case(report: Report, question: str, name: str, verdict: Verdict, reason: str) -> xml.Element:
    # Readers split the class name at its dots: the artefact becomes the package, the question the class.
    artefact = PurePath(report.candidate.path).name
    case = xml.Element("testcase", classname=phrases.text(f"{artefact}.{question}"), name=phrases.text(name))
    message = phrases.text(f"{verdict}: {reason}")
    if _fails(report, verdict):
        xml.SubElement(case, "failure", type=verdict, message=message).text = "\n".join(_explain(report))
    elif verdict not in RIGHT:
        xml.SubElement(case, "skipped", type=verdict, message=message)
    return case


def _explain(report: Report) -> Iterator[str]:
    """Yield the failure of the whole run, and the node at fault where `debug` found it."""
    yield phrases.text(f"{phrases.summary(report)}: {report.reason}")
    found = report.diagnosis
    if found is not None:
        yield phrases.text(found.summary)
        if found.node is not None:
            yield phrases.text(f"node: {phrases.node(found.node)}, stage {found.node.stage}")
        if found.repro is not None:
            yield phrases.text(f"to reproduce it alone: {found.repro}")


def _fails(report: Report, verdict: Verdict) -> bool:
    """Return whether a case fails: never where the artefact passes, so that cases and exit code agree."""
    return not report.passed and verdict not in LEAVES
