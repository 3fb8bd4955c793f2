"""The parts of SARIF 2.1.0 reports that all subjects share.

They keep to what GitHub's code scanning asks for beyond the standard: a region, and a fingerprint for each result.
GitHub would make the fingerprint from the text of the line, and a model has no lines.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from onnxport.core.version import __version__
from onnxport.reports import phrases
from onnxport.validate.report import NodeRef

Json = dict[str, Any]

# Kind of failure to id, level, meaning and help.
Rules = Mapping[str, tuple[str, str, str, str]]

VERDICT_RULES: Rules = {
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
        "A lower precision loses more accuracy than the budget allows.",
        "Raise the precision of the layers that lose most, or the budget.",
    ),
    "inconclusive": (
        "inconclusive",
        "warning",
        "The inputs prove nothing about the output.",
        "Give inputs of your own with --inputs DIR, or accept it with --accept-inconclusive.",
    ),
}


def log(rules: Rules, results: Sequence[Json], exit_code: int, command: Sequence[str]) -> str:
    """Return the document of `results`; without arguments behind the command's name it has no command line."""
    invocation: Json = {"executionSuccessful": True, "exitCode": exit_code}
    if line := phrases.command_line(command[0], command[1:]):
        invocation["commandLine"] = line
    driver = {
        "name": "onnxport",
        "version": __version__,
        "rules": [_rule(name, *columns) for name, *columns in rules.values()],
    }
    run = {"tool": {"driver": driver}, "invocations": [invocation], "columnKind": "unicodeCodePoints"}
    run["results"] = results
    document = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


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


def result(rules: Rules, kind: str, identity: Sequence[str], text: str) -> Json:
    """Return a result without its location; its fingerprint is made from `identity`."""
    name, level, *_ = rules[kind]
    digest = hashlib.sha256(json.dumps([name, *identity]).encode()).hexdigest()[:32]
    return {
        "ruleId": name,
        "ruleIndex": list(rules).index(kind),
        "level": level,
        "message": {"text": phrases.text(text)},
        "partialFingerprints": {"primaryLocationLineHash": f"{digest}:1"},
    }


def artifact_location(path: PurePath, base: PurePath) -> Json:
    """Return an artifactLocation: relative to the checkout where `path` is below it or relative, else absolute."""
    if path.is_absolute() and not path.is_relative_to(base):
        return {"uri": path.as_uri()}
    relative = path.relative_to(base) if path.is_absolute() else path
    return {"uri": quote(relative.as_posix(), safe="/"), "uriBaseId": "%SRCROOT%"}


def node_location(node: NodeRef) -> Json:
    """Return the logicalLocation of an ONNX node."""
    return {
        "name": phrases.text(node.name or node.value),
        "fullyQualifiedName": phrases.text(f"{node.op}/{node.name or node.value}"),
        "kind": "node",
        "properties": {name: phrases.text(getattr(node, name)) for name in ("op", "value", "stage")},
    }
