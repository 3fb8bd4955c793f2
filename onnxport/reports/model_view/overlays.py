"""Findings as values of nodes: what Model Explorer calls node data.

Errors come from a report of `debug`, times from one of `profile`, runtimes from one of `inspect --runs-on`, and the
precision from the file itself.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from onnxport.core.errors import InputError, printable
from onnxport.core.missing_paths import unreadable_path
from onnxport.deployment.report import DeploymentReport
from onnxport.formats.artifact import Artifact
from onnxport.formats.graph import UNKNOWN
from onnxport.formats.tflite.tensor_names import INNER
from onnxport.profiling.report import ProfileReport
from onnxport.reports.model_view.graphs import ViewedGraph
from onnxport.reports.run_report import RunReport

Value = float | str
_MAKE = "make one with --json: onnxport debug, profile, or inspect --runs-on"
_HUGE = 1e38  # JSON has no infinity
# From small to large; a large error or time is what one looks for.
_GRADIENT = [{"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#e5655b"}]
_LEFT = "#e5655b"
_BY_TYPE = {
    **dict.fromkeys(("int8", "uint8", "int4", "uint4", "int2"), "#bfe3c0"),
    **dict.fromkeys(("float16", "bfloat16", "int16"), "#cfe2f3"),
    "float32": "#fce5cd",
}


@dataclass(frozen=True)
class Overlay:
    """A value for some nodes.

    Attributes:
        values: by the name of the node, or of one of its outputs.
        colors: of the texts among the values.
        model: the file name of the only model that it is about; empty for any.
    """

    name: str
    values: Mapping[str, Value]
    colors: Mapping[str, str]
    model: str = ""

    def concerns(self, model: Artifact) -> bool:
        return self.model in ("", model.path.name)

    def of(self, viewed: ViewedGraph) -> dict[str, Value]:
        """Return its values for the nodes of a graph, by id; empty where it says nothing about them."""
        found = {}
        for key, node in viewed.nodes.items():
            for name in (node.name, *node.output_names):
                if name and name in self.values:
                    found[key] = self.values[name]
                    break
        return found

    def document(self, graphs: Iterable[ViewedGraph]) -> dict[str, Any]:
        """Return the node data of all graphs of a file; empty where it says nothing about them."""
        return {each.id: self._data(values) for each in graphs if (values := self.of(each))}

    def _data(self, values: Mapping[str, Value]) -> dict[str, Any]:
        results = {
            key: {"value": float(f"{value:.4g}") if isinstance(value, float) else value}
            | ({"bgColor": self.colors[value]} if isinstance(value, str) and value in self.colors else {})
            for key, value in values.items()
        }
        numeric = any(isinstance(value, float) for value in values.values())
        return {"name": self.name, "results": results} | ({"gradient": _GRADIENT} if numeric else {})


def precision(graphs: Sequence[ViewedGraph]) -> Overlay:
    """Return the element type of each node's first output."""
    types = {}
    for viewed in graphs:
        for node in viewed.nodes.values():
            output = next(filter(None, node.outputs), None)
            if output is not None and output.name and output.dtype != UNKNOWN:
                types[output.name] = output.dtype
    return Overlay("precision", types, _BY_TYPE)


def read_overlays(path: Path) -> list[Overlay]:
    """Read what a report of `debug`, `profile` or `inspect --runs-on` says about nodes.

    Raises:
        InputError: the file is missing, or is no such report.
    """
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise unreadable_path(path, error, fix=_MAKE) from error
    except (ValueError, RecursionError) as error:
        raise _no_report(path, f"it is not JSON: {printable(error)}") from None
    if not isinstance(document, dict):
        raise _no_report(path, "it is other JSON")
    text = json.dumps(document)
    try:
        if "placements" in document:
            return list(_placements(DeploymentReport.model_validate_json(text)))
        if "nodes_ms" in document:
            return [_times(ProfileReport.model_validate_json(text))]
        if "artifacts" in document:
            return list(_errors(path, RunReport.model_validate_json(text)))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise _no_report(path, printable(f"{key}: {first['msg']}")) from None
    raise _no_report(path, "it is another document")


def overlays_for(paths: Sequence[Path], models: Sequence[Artifact]) -> list[Overlay]:
    """Read reports about `models`; InputError for one that is about another model."""
    found = []
    for path in paths:
        overlays = read_overlays(path)
        strangers = [each.model for each in overlays if not any(map(each.concerns, models))]
        if strangers:
            raise InputError(
                f"{path} is about {strangers[0]}", fix=f"give {strangers[0]} as well, or leave it out"
            )
        found += overlays
    return found


def _no_report(path: Path, why: str) -> InputError:
    return InputError(f"{path} has no findings about nodes", why=why, fix=_MAKE)


def _errors(path: Path, run: RunReport) -> Iterator[Overlay]:
    """Yield the difference of each value, and how far its node alone is beyond what rounding explains."""
    layers = [
        figure
        for artifact in run.artifacts
        if artifact.report.diagnosis is not None
        for figure in artifact.report.diagnosis.layers
    ]
    if not layers:
        raise _no_report(path, "it has no figures of intermediate values")
    share = {
        figure.node.value: _finite(figure.max_abs / figure.scale) for figure in layers if figure.scale > 0
    }
    yield Overlay("error of scale", share, {})
    local = {
        figure.node.value: _finite(figure.local_share) for figure in layers if figure.local_share is not None
    }
    if local:
        yield Overlay("error of the node alone", local, {})


def _times(report: ProfileReport) -> Overlay:
    """Return the milliseconds of each node; a fused one counts for the last ONNX node that it computes."""
    spent: dict[str, float] = {}
    for node in report.nodes:
        for name in dict.fromkeys((node.name.removesuffix(INNER), *node.sources[-1:])):
            spent[name] = spent.get(name, 0.0) + node.ms
    return Overlay(f"ms in {report.ran_on}", spent, {}, _name(report.model))


def _placements(report: DeploymentReport) -> Iterator[Overlay]:
    """Yield a runtime's word about each node that it leaves; the others are taken."""
    for placement in report.placements:
        if placement.fallbacks:
            left = {each.node: f"left: {each.why}" for each in placement.fallbacks}
            colors = dict.fromkeys(left.values(), _LEFT)
            yield Overlay(f"left by {placement.title}", left, colors, _name(report.model))


def _name(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]


def _finite(value: float) -> float:
    return value if math.isfinite(value) else _HUGE
