"""The report as SARIF 2.1.0: a result per output that fails, located at the ONNX node that makes it.

Keeps to what GitHub's code scanning asks for beyond the standard: a region, and a fingerprint of its own per result,
because it would take one from the text of the line, and a model has no lines.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote

from onnxport.core.version import __version__
from onnxport.reports import wording
from onnxport.reports.run_report import RunReport
from onnxport.validate.report import Judgement, NodeRef, OutputReport, Report, Verdict

Json = dict[str, Any]

# By kind of failure: id, level, what it means, what to do.
Rules = Mapping[str, tuple[str, str, str, str]]

RULES: Rules = {
    "not equivalent": (
        "not-equivalent",
        "error",
        "The artefact does not compute what its reference computes.",
        "Look at the figures of the output and at the node that makes it; onnxport debug finds the first node "
        "that differs.",
    ),
    "over budget": (
        "over-budget",
        "error",
        "A lower precision costs more accuracy than it may.",
        "Raise the precision of the layers that lose most, or the budget.",
    ),
    "inconclusive": (
        "inconclusive",
        "warning",
        "The inputs prove nothing about the output.",
        "Give inputs of your own with --inputs DIR, or accept it with --accept-inconclusive.",
    ),
}


def view(report: RunReport) -> str:
    results = [result for artifact in report.artifacts for result in _results(artifact.report, Path.cwd())]
    return log(RULES, results, report.exit_code, (report.command, *report.arguments))


def log(rules: Rules, results: Sequence[Json], exit_code: int, command: Sequence[str]) -> str:
    """The document of `results`; `command` is the command's name and what followed it, where anything did."""
    invocation: Json = {"executionSuccessful": True, "exitCode": exit_code}
    if len(command) > 1:
        invocation["commandLine"] = shlex.join(("onnxport", *command))
    driver = {
        "name": "onnxport",
        "version": __version__,
        "rules": [_rule(name, *columns) for name, *columns in rules.values()],
    }
    run = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    whole = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return json.dumps(whole, indent=2, allow_nan=False) + "\n"


def ruled(rules: Rules, kind: str, identity: Sequence[str], text: str) -> Json:
    """What a result says whatever it is about: its rule, its text and its fingerprint, which is made of `identity`."""
    name, level, *_ = rules[kind]
    digest = hashlib.sha256(json.dumps([name, *identity]).encode()).hexdigest()[:32]
    return {
        "ruleId": name,
        "ruleIndex": list(rules).index(kind),
        "level": level,
        "message": {"text": wording.text(text)},
        "partialFingerprints": {"primaryLocationLineHash": f"{digest}:1"},
    }


def uri(path: PurePath, base: PurePath) -> Json:
    """An artifactLocation: relative to the checkout where `path` is below it or relative, else absolute."""
    if path.is_absolute() and not path.is_relative_to(base):
        return {"uri": path.as_uri()}
    relative = path.relative_to(base) if path.is_absolute() else path
    return {"uri": quote(relative.as_posix(), safe="/"), "uriBaseId": "%SRCROOT%"}


def _rule(name: str, level: str, meaning: str, remedy: str) -> Json:
    return {
        "id": name,
        "name": name.title().replace("-", ""),
        "shortDescription": {"text": meaning},
        "fullDescription": {"text": meaning},
        "help": {"text": remedy},
        "defaultConfiguration": {"level": level},
        "properties": {"tags": ["equivalence", "onnx"]},
    }


def _results(report: Report, base: PurePath) -> Iterator[Json]:
    """The failures of an artefact; at least one if it fails, none if it passes."""
    if report.passed:
        return
    judged = [judgement for judgement in report.judgements if judgement.verdict in RULES]
    for judgement in judged:
        outputs = [output for output in judgement.outputs if output.verdict in RULES]
        for output in outputs:
            yield _output_result(report, judgement, output, base)
        if not outputs:
            text = f"{judgement.question}: {judgement.reason}"
            yield _result(report, judgement.verdict, (judgement.question,), text, [], base)
    if not judged:
        yield _result(report, report.verdict, (), report.reason, [], base)


def _output_result(report: Report, judgement: Judgement, output: OutputReport, base: PurePath) -> Json:
    text = f"{judgement.question} of output '{wording.text(output.name)}': {output.rule}"
    if output.worst is not None:
        text += f"; {wording.place(output.worst)}"
    found = report.diagnosis.node if report.diagnosis is not None else None
    # Once each, the standard asks, also where the guilty node is the one that makes the output.
    refs = dict.fromkeys(node for node in (found, output.node) if node is not None)
    nodes = [logical(node) for node in refs]
    nodes.append({"name": wording.text(output.name), "kind": "output"})
    key = (judgement.question, output.name)
    result = _result(report, output.verdict, key, text, nodes, base)
    result["properties"] = dict(wording.figures(output, judgement.question))
    return result


def _result(
    report: Report, verdict: Verdict, key: tuple[str, ...], text: str, nodes: list[Json], base: PurePath
) -> Json:
    model, candidate = (
        {"artifactLocation": uri(Path(side.path), base), "region": {"startLine": 1}}
        for side in (report.reference, report.candidate)
    )
    return ruled(RULES, verdict, (*key, report.candidate.format), text) | {
        "locations": [{"physicalLocation": model} | ({"logicalLocations": nodes} if nodes else {})],
        "relatedLocations": [{"id": 1, "physicalLocation": candidate, "message": {"text": "the candidate"}}],
    }


def logical(node: NodeRef) -> Json:
    """A logicalLocation."""
    return {
        "name": wording.text(node.name or node.value),
        "fullyQualifiedName": wording.text(f"{node.op}/{node.name or node.value}"),
        "kind": "node",
        "properties": {
            "op": wording.text(node.op),
            "value": wording.text(node.value),
            "stage": wording.text(node.stage),
        },
    }
