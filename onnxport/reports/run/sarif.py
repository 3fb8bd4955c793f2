"""The SARIF of a run: a result per output that fails, located at the ONNX node that makes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePath

from onnxport.reports import phrases
from onnxport.reports.run_report import RunReport
from onnxport.reports.sarif import VERDICT_RULES, Json, artifact_location, log, node_location, result
from onnxport.validate.report import Judgement, OutputReport, Report, Verdict


def view(report: RunReport) -> str:
    results = [found for artifact in report.artifacts for found in _results(artifact.report, Path.cwd())]
    return log(VERDICT_RULES, results, report.exit_code, (report.command, *report.arguments))


def _results(report: Report, base: PurePath) -> Iterator[Json]:
    """Yield the failures of an artefact; at least one if it fails, none if it passes."""
    if report.passed:
        return
    judged = [judgement for judgement in report.judgements if judgement.verdict in VERDICT_RULES]
    for judgement in judged:
        outputs = [output for output in judgement.outputs if output.verdict in VERDICT_RULES]
        for output in outputs:
            yield _output_result(report, judgement, output, base)
        if not outputs:
            text = f"{judgement.question}: {judgement.reason}"
            yield _result(report, judgement.verdict, (judgement.question,), text, [], base)
    if not judged:
        yield _result(report, report.verdict, (), report.reason, [], base)


def _output_result(report: Report, judgement: Judgement, output: OutputReport, base: PurePath) -> Json:
    text = f"{judgement.question} of output '{phrases.text(output.name)}': {output.rule}"
    if output.worst is not None:
        text += f"; {phrases.worst_element(output.worst)}"
    at_fault = report.diagnosis.node if report.diagnosis is not None else None
    # The standard wants each node once, also where the node at fault makes the output.
    refs = dict.fromkeys(node for node in (at_fault, output.node) if node is not None)
    nodes = [node_location(node) for node in refs]
    nodes.append({"name": phrases.text(output.name), "kind": "output"})
    key = (judgement.question, output.name)
    found = _result(report, output.verdict, key, text, nodes, base)
    found["properties"] = dict(phrases.output_figures(output, judgement.question))
    return found


def _result(
    report: Report, verdict: Verdict, key: tuple[str, ...], text: str, nodes: list[Json], base: PurePath
) -> Json:
    model, candidate = (
        {"artifactLocation": artifact_location(Path(side.path), base), "region": {"startLine": 1}}
        for side in (report.reference, report.candidate)
    )
    return result(VERDICT_RULES, verdict, (*key, report.candidate.format), text) | {
        "locations": [{"physicalLocation": model} | ({"logicalLocations": nodes} if nodes else {})],
        "relatedLocations": [{"id": 1, "physicalLocation": candidate, "message": {"text": "the candidate"}}],
    }
