"""The SARIF of a deployment: a result per runtime, operator and reason, located at the nodes that fall back.

Results are warnings; with `--error-on-fallback`, errors. A runtime that takes all nodes has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from onnxport.deployment.report import DeploymentReport, Placement
from onnxport.reports import phrases
from onnxport.reports.deployment import figures
from onnxport.reports.deployment.figures import Kind
from onnxport.reports.sarif import Json, Rules, artifact_location, log, result

_NODES = 100  # of one result
_REMEDY = "inspect --runs-on names the change that ends most fallbacks, where there is one."


def view(report: DeploymentReport) -> str:
    rules = _rules("error" if report.strict else "warning")
    results = [each for placement in report.placements for each in _results(report, placement, rules)]
    return log(rules, results, report.exit_code, figures.arguments(report))


def _rules(level: str) -> Rules:
    return {
        "part": ("falls-back", level, "A runtime leaves nodes of the model to a fallback.", _REMEDY),
        "none": ("not-taken", level, "A runtime refuses the model.", _REMEDY),
        "unknown": (
            "not-known",
            level,
            "A runtime was asked about the model and gave no answer.",
            "The message says how its process ended; --verbose shows what it printed.",
        ),
    }


def _results(report: DeploymentReport, placement: Placement, rules: Rules) -> Iterator[Json]:
    if placement.extent == "all":
        return
    title = phrases.text(placement.title)
    if placement.why or not placement.fallbacks:
        yield _result(
            report, placement, rules, (), f"{title}: {placement.why or figures.extent_text(placement)}", ()
        )
    for kind in figures.kinds(placement):
        message = f"{title} leaves out {phrases.count(len(kind.nodes), 'node')} {kind.op}: {kind.why}"
        nodes = [_node(kind, name) for name in dict.fromkeys(kind.nodes)][:_NODES]
        yield _result(report, placement, rules, (kind.op, kind.why), message, nodes)


def _result(
    report: DeploymentReport,
    placement: Placement,
    rules: Rules,
    identity: Sequence[str],
    message: str,
    nodes: Sequence[Json],
) -> Json:
    place: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": artifact_location(Path(report.model), Path.cwd()),
            "region": {"startLine": 1},
        }
    }
    if nodes:
        place["logicalLocations"] = list(nodes)
    found = result(rules, placement.extent, (placement.runtime, *identity), message) | {"locations": [place]}
    properties = {"runtime": placement.runtime, "toldBy": figures.origin(placement)}
    return found | {
        "properties": properties | ({"change": figures.change(placement)} if placement.change else {})
    }


def _node(kind: Kind, name: str) -> Json:
    return {
        "name": phrases.text(name),
        "fullyQualifiedName": phrases.text(f"{kind.op}/{name}"),
        "kind": "node",
        "properties": {"op": phrases.text(kind.op)},
    }
